"""The key-value engine on Valkey."""
