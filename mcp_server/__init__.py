"""The MCP server: the registry's tools at /mcp."""
