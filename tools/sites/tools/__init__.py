"""The tools of sites, one noun a file."""
