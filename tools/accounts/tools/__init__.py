"""The tools of accounts."""
