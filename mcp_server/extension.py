"""Extensions: what the MCP endpoint serves beside the registry's tools."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import mcp_types as types

Context = Any
"""The SDK's ServerRequestContext; `get_client(ctx)` in mcp_client.py returns the client."""
Method = Callable[[Context, Any], Awaitable[types.Result]]


class Extension:
    """The base class, which serves nothing. A method returns None for what belongs to another extension.

    Lists are complete; the protocol server divides them into pages.
    """

    tools: Sequence[types.Tool] = ()
    methods: Mapping[str, tuple[type[types.RequestParams], Method]] = {}
    """Further methods of the protocol by name: the model of the parameters, and the handler."""

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | None:
        return None

    async def prompts(self, ctx: Context) -> Sequence[types.Prompt]:
        return ()

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult | None:
        return None

    async def resources(self, ctx: Context) -> Sequence[types.Resource]:
        return ()

    async def resource_templates(self, ctx: Context) -> Sequence[types.ResourceTemplate]:
        return ()

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult | None:
        return None

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult | None:
        return None
