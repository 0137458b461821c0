"""The tools of functions, one noun a file."""
