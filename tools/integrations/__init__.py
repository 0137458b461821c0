"""Integrations: the accounts of an app's users at other services, and calls of these services' tools with them."""

from baobab.tools.integrations import jobs
from baobab.tools.integrations.tools import calls, connections, hooks, toolkits
from baobab.tools.integrations.toolset import integration_hooks, integrations

TOOLSETS = (integrations, integration_hooks)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (jobs, toolkits, connections, calls, hooks)
"""Importing these modules registers the tools and jobs of the toolset."""
