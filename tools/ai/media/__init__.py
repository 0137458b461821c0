"""Images and videos of an app: submitted, made by a durable job, polled, downloaded."""

from baobab.tools.ai.media import jobs
from baobab.tools.ai.media.tools import images, videos
from baobab.tools.ai.media.toolset import media

TOOLSETS = (media,)
"""The families of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    images,
    videos,
)
"""Importing these registers the tools, jobs and gauges of the families."""
