"""The toolset of OAuth."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone

oauth = Toolset(
    "oauth",
    "OAuth: keys for MCP clients, with a person's consent.",
    mcp=False,
    clones=never_clone("credentials", "oauth_codes"),
)
