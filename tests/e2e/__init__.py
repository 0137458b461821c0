"""The public MCP conformance suite as judge of the MCP endpoint (`make e2e`)."""
