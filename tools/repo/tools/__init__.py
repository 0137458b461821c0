"""The tools of the repository, one noun a file."""
