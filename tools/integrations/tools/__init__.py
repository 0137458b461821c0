"""The tools of integrations, one noun a file."""
