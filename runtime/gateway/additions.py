"""Fields that LiteLLM has no words for: they are put into a request where it leaves for its provider.

As arguments they would mean too much to the library, which has hundreds of its own: addresses, keys, answers made up.
"""

from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

from pydantic_core import from_json, to_json


def build_adding_client(library: ModuleType, fields: Mapping[str, Any]) -> Any:
    """A client for Anthropic that adds `fields` to the one request that it sends; none takes the place of another."""
    return _adding_client_class(library)(fields)


@cache
def _adding_client_class(library: ModuleType) -> type[Any]:
    handlers: Any = library.llms.custom_httpx.http_handler

    class Adding(handlers.AsyncHTTPHandler):  # type: ignore[misc]  # it is loaded late
        def __init__(self, fields: Mapping[str, Any]) -> None:
            # The connections are those of everybody.
            self._shared = handlers.get_async_httpx_client(llm_provider=library.LlmProviders.ANTHROPIC)
            self._fields = fields

        async def post(self, url: str, *, data: Any = None, json: Any = None, **options: Any) -> Any:
            body = {**self._fields, **(from_json(data) if json is None else json)}
            return await self._shared.post(url, data=to_json(body), **options)

    return Adding
