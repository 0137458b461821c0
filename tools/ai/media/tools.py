"""Every image and video tool: importing their files registers them."""

from baobab.tools.ai.media import generating, images, sweeping, videos
from baobab.tools.ai.media.toolset import media

__all__ = ["generating", "images", "media", "sweeping", "videos"]
