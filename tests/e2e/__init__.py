"""The public MCP conformance suite as judge of the MCP door (`make e2e`)."""
