"""The tools of files, one noun a file."""
