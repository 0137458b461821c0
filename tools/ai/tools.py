"""Every model tool: importing their files registers them."""

from baobab.tools.ai import administration, chat, models, sweeping
from baobab.tools.ai.toolset import ai, gateway

__all__ = ["administration", "ai", "chat", "gateway", "models", "sweeping"]
