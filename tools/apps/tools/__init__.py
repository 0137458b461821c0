"""The tools of apps."""
