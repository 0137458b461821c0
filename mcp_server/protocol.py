"""The protocol server: list and call, for the caller that the door has found."""

import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from pydantic_core import from_json

from baobab.tools.errors import BaobabError, Internal, ToolNotFound
from baobab.tools.registry import Registry
from baobab.tools.tool import Tool

CALLER = "baobab.caller"
DOOR = "baobab.door"
"""Where the door leaves, in the request's scope, what it found out."""

_MAX_BODY = 4 * 2**20

_log = logging.getLogger(__name__)


def session_manager(registry: Registry, version: str) -> StreamableHTTPSessionManager:
    server: Server[Any] = Server(
        "baobab",
        version=version,
        instructions="Tools of a Baobab installation. Read /llms.txt for how they fit together.",
        # Without this every call would list all tools again, only to look for headers in one.
        get_tool_input_schema=_no_header_parameters,
        on_list_tools=_lister(registry),
        on_call_tool=_caller(registry),
    )
    return StreamableHTTPSessionManager(
        server,
        stateless=True,
        # The front has checked Host and Origin already, by the same lists as for every other door.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=_MAX_BODY,
    )


def _no_header_parameters(_name: str) -> Mapping[str, Any] | None:
    return None


def _lister(registry: Registry) -> Any:
    async def list_tools(ctx: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = registry.visible_to(ctx.request.scope[CALLER])
        # What a caller sees depends on its credential: nobody else may be given this list from a cache.
        return types.ListToolsResult(tools=[_described(tool) for tool in tools], ttl_ms=60_000, cache_scope="private")

    return list_tools


def _caller(registry: Registry) -> Any:
    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        scope = ctx.request.scope
        try:
            tool = registry.find(params.name)
            result, _ = await registry.run(tool, params.arguments or {}, scope[CALLER], scope[DOOR])
        except ToolNotFound as error:
            raise MCPError(
                types.INVALID_PARAMS, error.message, {"code": error.code, "remediation": error.remedy}
            ) from None
        except BaobabError as error:
            return _failed(error)
        except Exception:  # noqa: BLE001 - the one place where this door turns what nobody expected into an answer
            _log.exception("unexpected error", extra={"request_id": scope[DOOR].request_id, "tool": params.name})
            return _failed(Internal())
        return _succeeded(tool, result)

    return call_tool


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema if _is_object(tool) else None,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.effect == "read",
            destructive_hint=tool.effect == "destructive",
            open_world_hint=tool.effect == "external",
        ),
    )


def _succeeded(tool: Tool, result: Any) -> types.CallToolResult:
    if result is None:
        return types.CallToolResult(content=[types.TextContent(text="Done.")])
    if isinstance(result, str):
        return types.CallToolResult(content=[types.TextContent(text=result)])
    raw = tool.encode(result)
    structured = from_json(raw) if _is_object(tool) else None
    return types.CallToolResult(content=[types.TextContent(text=raw.decode())], structured_content=structured)


def _failed(error: BaobabError) -> types.CallToolResult:
    told = {"code": error.code, "message": error.message, "remediation": error.remedy, "details": error.details}
    return types.CallToolResult(
        content=[types.TextContent(text=f"{error.code}: {error.message} {error.remedy}")],
        structured_content={"error": told},
        is_error=True,
    )


def _is_object(tool: Tool) -> bool:
    return tool.output_schema is not None and tool.output_schema.get("type") == "object"
