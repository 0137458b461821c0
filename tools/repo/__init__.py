"""The repository of an app: snapshots of its source files, whose contents are stored once each."""

from baobab.tools.repo import jobs
from baobab.tools.repo.tools import blobs, settings, snapshots
from baobab.tools.repo.toolset import repo

TOOLSETS = (repo,)
MODULES = (
    snapshots,
    blobs,
    settings,
    jobs,
)
"""Importing these registers the tools and jobs of the toolset."""
