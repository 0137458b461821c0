"""Apps: made, listed, renamed, configured and deleted."""
