"""The engine whose durable tier lies beside the rows and whose ephemeral tier is in Valkey."""
