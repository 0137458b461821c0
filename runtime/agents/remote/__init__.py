"""Tool servers: MCP servers of others, whose tools an app's agents may call."""
