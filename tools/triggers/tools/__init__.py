"""The tools of triggers."""
