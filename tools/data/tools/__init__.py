"""The tools of an app's tables."""
