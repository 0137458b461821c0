"""The framework of tools: it knows no domain."""
