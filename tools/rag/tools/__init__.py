"""The tools of retrieval, one noun a file."""
