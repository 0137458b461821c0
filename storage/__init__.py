"""Where things are kept. Knows no domain."""
