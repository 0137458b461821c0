"""An app's images and videos, which durable jobs make: the tools submit, poll and download."""

from baobab.tools.ai.media import jobs
from baobab.tools.ai.media.tools import images, videos
from baobab.tools.ai.media.toolset import media

TOOLSETS = (media,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    images,
    videos,
)
"""Importing these modules registers the tools, jobs and gauges of the toolsets."""
