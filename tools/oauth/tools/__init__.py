"""The tools of OAuth 2.1 for MCP clients: a person agrees, and the client gets an API key.

mcp_server/oauth/ speaks the protocol itself. These tools hold its rules and make its changes.
"""
