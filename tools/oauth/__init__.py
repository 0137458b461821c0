"""OAuth: what an MCP client goes through to be given an API key by a person."""
