"""Vectors for other domains, which ask for them by the registry."""

from typing import Annotated

from pydantic import Field

from baobab.tools.ai.settings import get_app_settings
from baobab.tools.ai.tools.chat import ModelName, embed
from baobab.tools.ai.toolset import CALLED, IN_AN_APP, ai
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Mcp
from baobab.tools.core.types import AppId, JsonObject, Text

_Texts = Annotated[list[Annotated[str, Text(10_000)]], Field(min_length=1, max_length=2048)]


@ai.tool(access=OF_APP, effect="external", raises=IN_AN_APP, limit=None, audit=CALLED, mcp=Mcp(offered=False))
async def ai_embed(call: Call, app_id: AppId, texts: _Texts, model: ModelName | None = None) -> JsonObject:
    """Turn the texts of documents and queries into vectors, without counting as a request of the app.

    model: null for the built-in embeddings.
    """
    return await embed(call, await get_app_settings(call, app_id), texts, model, {}, None)
