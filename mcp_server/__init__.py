"""The MCP door: the registry's tools at /mcp."""
