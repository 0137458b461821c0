"""What stands on FastAPI and the MCP library. Imported by the annex, late and in a thread (annex.py)."""

from baobab.http.behind import behind
from baobab.mcp_server.completion import Completion
from baobab.mcp_server.door import McpDoor
from baobab.mcp_server.errors import ERRORS
from baobab.mcp_server.oauth.routes import oauth_routes
from baobab.mcp_server.prompts import Prompts
from baobab.mcp_server.resources import Resources

__all__ = ["ERRORS", "Completion", "McpDoor", "Prompts", "Resources", "behind", "oauth_routes"]
