"""The engine with its durable tier beside the rows and its ephemeral tier in Valkey."""
