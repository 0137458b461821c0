"""The tools of organisations."""
