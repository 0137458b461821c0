"""Storage: the database, the key-value store, objects and secrets. It knows no domain."""
