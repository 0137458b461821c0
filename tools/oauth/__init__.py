"""OAuth: what an MCP client goes through to be given an API key by a person."""

from baobab.tools.oauth import jobs, tools
from baobab.tools.oauth.toolset import oauth

TOOLSETS = (oauth,)
"""The families of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    tools,
)
"""Importing these registers the tools, jobs and gauges of the families."""
