"""Adds fields that LiteLLM does not know to a request, just before it is sent to the provider.

They cannot be arguments: LiteLLM has hundreds of its own with side effects, such as addresses, keys and mock answers.
"""

from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

from pydantic_core import from_json, to_json


def build_adding_client(library: ModuleType, fields: Mapping[str, Any]) -> Any:
    """Builds a client for Anthropic that adds `fields` to its one request; fields that are already there stay."""
    return _adding_client_class(library)(fields)


@cache
def _adding_client_class(library: ModuleType) -> type[Any]:
    handlers: Any = library.llms.custom_httpx.http_handler

    class Adding(handlers.AsyncHTTPHandler):  # type: ignore[misc]  # it is loaded late
        def __init__(self, fields: Mapping[str, Any]) -> None:
            # The connections are shared by all calls.
            self._shared = handlers.get_async_httpx_client(llm_provider=library.LlmProviders.ANTHROPIC)
            self._fields = fields

        async def post(self, url: str, *, data: Any = None, json: Any = None, **options: Any) -> Any:
            body = {**self._fields, **(from_json(data) if json is None else json)}
            return await self._shared.post(url, data=to_json(body), **options)

    return Adding
