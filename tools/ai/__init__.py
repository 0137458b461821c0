"""The domain of models: chat, embeddings, the catalogue, an app's settings and its usage."""

from baobab.tools.ai import jobs, media, meetings
from baobab.tools.ai.tools import administration, chat, embeddings, models, provider_keys, responses, servers
from baobab.tools.ai.tools import messages as messages_tools
from baobab.tools.ai.toolset import ai, app_messages, gateway, messages, model_servers

TOOLSETS = (
    gateway,
    messages,
    ai,
    app_messages,
    *media.TOOLSETS,
    *meetings.TOOLSETS,
    model_servers,
)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    administration,
    chat,
    embeddings,
    messages_tools,
    models,
    provider_keys,
    responses,
    servers,
)
"""Importing these modules registers the tools, jobs and gauges of the toolsets."""
