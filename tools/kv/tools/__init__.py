"""The tools of the key-value store."""
