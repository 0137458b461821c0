"""The tools of billing."""
