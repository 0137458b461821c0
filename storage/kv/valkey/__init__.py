"""The engine on Valkey."""
