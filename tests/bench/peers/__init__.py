"""What others would build: the peers of the measurements."""
