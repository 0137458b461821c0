"""The toolset of OAuth."""

from baobab.tools.core.toolset import Toolset

oauth = Toolset("oauth", "OAuth: keys for MCP clients, with a person's consent.", mcp=False)
