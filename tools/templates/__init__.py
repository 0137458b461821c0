"""Templates: apps that others may clone, and the jobs that make the clones."""

from baobab.tools.templates import jobs
from baobab.tools.templates.tools import clones as clones_tools
from baobab.tools.templates.tools import review as review_tools
from baobab.tools.templates.tools import templates as templates_tools
from baobab.tools.templates.tools import webhook as webhook_tools
from baobab.tools.templates.toolset import clones, templates

TOOLSETS = (
    templates,
    clones,
)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    templates_tools,
    clones_tools,
    review_tools,
    webhook_tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
