"""Every model tool: importing their files registers them."""

from baobab.tools.ai import administration, chat, models, provider_keys, responses, servers, sweeping
from baobab.tools.ai.messages import messages
from baobab.tools.ai.toolset import ai, app_messages, gateway, model_servers

__all__ = [
    "administration",
    "ai",
    "app_messages",
    "chat",
    "gateway",
    "messages",
    "model_servers",
    "models",
    "provider_keys",
    "responses",
    "servers",
    "sweeping",
]
