"""The interfaces that need FastAPI or the MCP library. The lazy mount imports this module late, in a thread."""

from baobab.http.fastapi_app import build_fastapi_app
from baobab.mcp_server.completion import Completion
from baobab.mcp_server.endpoint import McpEndpoint
from baobab.mcp_server.errors import ERRORS
from baobab.mcp_server.oauth.routes import oauth_routes
from baobab.mcp_server.prompts import Prompts
from baobab.mcp_server.resources import Resources

__all__ = ["ERRORS", "Completion", "McpEndpoint", "Prompts", "Resources", "build_fastapi_app", "oauth_routes"]
