"""The key-value store: several engines with one interface."""
