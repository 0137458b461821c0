"""FastMCP's client."""

import checks
from fastmcp import Client

checks.run_session(lambda: Client(checks.MCP, auth=checks.KEY), raise_on_error=False)
