"""The tools of meeting bots."""
