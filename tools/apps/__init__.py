"""Apps: create, list, rename, configure and delete them."""

from baobab.tools.apps import jobs
from baobab.tools.apps.tools import apps as apps_tools
from baobab.tools.apps.tools import config as config_tools
from baobab.tools.apps.tools.config import config
from baobab.tools.apps.toolset import apps

TOOLSETS = (
    apps,
    config,
)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    apps_tools,
    config_tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
