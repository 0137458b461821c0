"""Sites: web pages of an app, deployed as files and served on the app's own host."""

from baobab.tools.sites import jobs
from baobab.tools.sites.tools import deployments, files, pages, variables
from baobab.tools.sites.toolset import sites

TOOLSETS = (sites,)
MODULES = (deployments, files, pages, variables, jobs)
"""Importing these registers the tools and jobs of the toolset."""
