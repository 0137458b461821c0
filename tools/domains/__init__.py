"""Custom domains: names of their own at which apps are served beside their subdomains."""

from baobab.tools.domains import jobs, tools
from baobab.tools.domains.toolset import domains

TOOLSETS = (domains,)
MODULES = (tools, jobs)
"""Importing these registers the tools and jobs of the toolset."""
