"""Toolboxes: extensions that serve a handful of tools, each a function."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types

from baobab.mcp_server.extension import Context, Extension

Answer = types.CallToolResult | types.InputRequiredResult
Handler = Callable[[Context, types.CallToolRequestParams], Awaitable[Answer]]


class Toolbox(Extension):
    def __init__(self) -> None:
        self.tools: list[types.Tool] = []
        self._handlers: dict[str, Handler] = {}

    def tool(self, description: str, schema: dict[str, Any] | None = None) -> Callable[[Handler], Handler]:
        """Serve a function as the tool of its name."""

        def serve(handler: Handler) -> Handler:
            name = handler.__name__
            assert name not in self._handlers, name
            self._handlers[name] = handler
            self.tools.append(types.Tool(name=name, description=description, input_schema=schema or {"type": "object"}))
            return handler

        return serve

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Answer | None:
        handler = self._handlers.get(params.name)
        return None if handler is None else await handler(ctx, params)


def text_schema(**descriptions: str) -> dict[str, Any]:
    """The schema of a tool that takes texts and needs all of them."""
    properties = {name: {"type": "string", "description": description} for name, description in descriptions.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


def text_result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)
