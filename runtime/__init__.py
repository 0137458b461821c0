"""What makes things run."""
