"""API keys: create, list, change and revoke them."""

from baobab.tools.api_keys.tools import keys, limits
from baobab.tools.api_keys.toolset import api_keys

TOOLSETS = (api_keys,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (keys, limits)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
