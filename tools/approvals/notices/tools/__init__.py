"""The tools of notices."""
