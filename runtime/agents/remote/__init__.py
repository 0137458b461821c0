"""Tool servers: external MCP servers whose tools an app's agents may call."""
