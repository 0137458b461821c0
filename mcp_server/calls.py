"""Answers `tools/call`: from its parameters to its result."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from baobab.mcp_server import meta_tools, results
from baobab.mcp_server.app_functions import PREFIX, AppFunctions
from baobab.mcp_server.apps import resolve_app_name
from baobab.mcp_server.catalogue import Catalogue, Offer, Page
from baobab.mcp_server.errors import ApprovalStateSpent
from baobab.mcp_server.mcp_client import McpClient, get_client
from baobab.mcp_server.search import NEAR, Candidate, get_name
from baobab.mcp_server.sessions import Sessions
from baobab.mcp_server.shortening import READ_ON, refuse_cut_values
from baobab.tools.core.auth import key_limits
from baobab.tools.core.auth.access import is_for_approvers
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.call import Call, Tool
from baobab.tools.core.context import Report, RequestContext
from baobab.tools.core.errors import (
    ApprovalRequired,
    BaobabError,
    Forbidden,
    Internal,
    KeyLimited,
    ToolNotFound,
    name_operations,
)
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry
from baobab.tools.core.spellings import read_spellings
from baobab.tools.system.unbuilt import Unbuilt

_STEP_SECONDS = 2.0
_SMALL = 0.001


class Heartbeat:
    """Reports the seconds since the start, until the call reports its own progress; then repeats that.

    A waiting client would take silence for a lost connection.
    """

    def __init__(self, report: Report, name: str) -> None:
        self._report = report
        self._message = f"{name} is still running"
        self._progress = 0.0
        self._total: float | None = None
        self._has_reported = False

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Reports progress that the call itself has made."""
        self._has_reported, self._progress, self._total = True, progress, total
        self._message = message or self._message
        await self._report(progress, total, message)

    @contextlib.asynccontextmanager
    async def keep_beating(self) -> AsyncIterator[None]:
        beating = asyncio.create_task(self._beat(), name="mcp heartbeat")
        try:
            yield
        finally:
            beating.cancel()
            # A client that has disconnected must not fail the call.
            await asyncio.gather(beating, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_STEP_SECONDS)
            # The protocol requires the progress to grow with each notification.
            self._progress += _SMALL if self._has_reported else _STEP_SECONDS
            await self._report(self._progress, self._total, self._message)


_APPROVAL = "approval"
_MOST_ELSEWHERE = 3
PATIENCE_SECONDS = 20.0

_log = logging.getLogger(__name__)


class ToolCalls:
    def __init__(self, registry: Registry, catalogue: Catalogue, sessions: Sessions) -> None:
        self._sessions = sessions
        self._registry = registry
        self._catalogue = catalogue
        self._functions = AppFunctions(registry)

    async def list_page(self, client: McpClient, offer: Offer, cursor: str | None) -> Page:
        """Returns a page of a client's list of tools, with the functions of its app. Raises CursorInvalid."""
        return await self._functions.add_to(await offer.get_page(cursor), client, offer)

    async def __call__(
        self, ctx: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Calls a tool and returns its result, or its error as a result. Raises MCPError for a tool that the client is
        not offered.
        """
        client = get_client(ctx)
        offer = self._catalogue.get_offer(client)
        try:
            if params.request_state is not None:
                await self._wait_for_decision(client, params.request_state, params.input_responses)
            if params.name == meta_tools.SEARCH and offer.has_search:
                return await self._search_tools(client, offer, params.arguments or {}, ctx.protocol_version)
            tool, arguments = await self.resolve_tool(client, offer, params.name, params.arguments or {})
            with self._sessions.track_call(client.session, ctx.request_id):
                result, call = await self._run_tool(tool, arguments, client, ctx, params)
            results.require_success(tool, result)
            return results.render_success(call, arguments, result, client, ctx.protocol_version)
        except ApprovalRequired as error:
            if params.request_state is None and _supports_url_elicitation(ctx):
                return _request_decision(error)
            return results.render_failure(error)
        except BaobabError as error:
            is_indirect = params.name == meta_tools.CALL and offer.has_search
            if isinstance(error, ToolNotFound | ApprovalStateSpent) and not is_indirect:
                data = results.render_error_data(error)
                raise MCPError(types.INVALID_PARAMS, data["message"], data) from None
            return results.render_failure(error)
        except Exception:  # noqa: BLE001 - the one place where MCP answers unexpected errors
            return report_unexpected(client, params.name)

    async def _run_tool(
        self, tool: Tool, arguments: dict[str, Any], client: McpClient, ctx: Any, params: types.CallToolRequestParams
    ) -> tuple[Any, Call]:
        """Makes a call, and returns its result and its record. A client that asked for progress is notified all through
        the call.
        """
        if "progress_token" not in (params.meta or {}):
            return await self.run(tool, arguments, client, client.context)
        heartbeat = Heartbeat(ctx.session.report_progress, tool.name)
        async with heartbeat.keep_beating():
            context = replace(client.context, report=heartbeat.report)
            return await self.run(tool, arguments, client, context)

    async def run(
        self, tool: Tool, arguments: dict[str, Any], client: McpClient, context: RequestContext
    ) -> tuple[Any, Call]:
        """Makes a call, and returns its result and its record. Raises CutValueSent where a value that was cut for a
        model would be written.
        """
        if tool.effect != "read":
            refuse_cut_values(arguments)
        elif READ_ON in arguments:
            arguments = {name: value for name, value in arguments.items() if name != READ_ON}
        return await self._registry.run(tool, arguments, client.caller, context)

    async def resolve_tool(
        self, client: McpClient, offer: Offer, name: str, arguments: dict[str, Any]
    ) -> tuple[Tool, dict[str, Any]]:
        """Returns the tool that is called and its arguments.

        Raises ToolNotFound for a tool that does not exist or is not in this view; KeyLimited or Forbidden for one that
        the client's credential may not use, since the list of tools is not secret.
        """
        if name == meta_tools.CALL and offer.has_search:
            name, arguments = meta_tools.parse_call(arguments)
        tool = offer.tools.get(name)
        if tool is None and (tool := await self._functions.find(client, offer, name)) is not None:
            arguments = {"name": name.removeprefix(PREFIX), "arguments": arguments}
            return tool, meta_tools.bind_app(arguments, client, tool.app_parameter)
        if tool is None:
            error = self._build_missing_error(name, client, offer)
            refused_tool = self._registry.tools.get(name)
            if refused_tool is not None and not isinstance(error, ToolNotFound):
                bound_arguments = meta_tools.bind_app(arguments, client, refused_tool.app_parameter)
                await self._registry.record_refusal(refused_tool, bound_arguments, client.context, error, client.caller)
            raise error
        arguments = {**tool.mcp_defaults, **_add_headers(read_spellings(tool, arguments), client, tool)}
        arguments = meta_tools.bind_app(arguments, client, tool.app_parameter)
        return tool, await resolve_app_name(self._registry, client, tool, arguments)

    def _build_missing_error(self, name: str, client: McpClient, offer: Offer) -> BaobabError:
        """Builds the error that says why a tool is not offered to a client."""
        tool = self._registry.tools.get(name)
        if tool is None or not tool.mcp:
            return _build_unknown(name, offer) if tool is None else _build_not_for_models(tool)
        limits = client.caller.limits
        if limits is not None and limits.tools is not None and name not in limits.tools:
            return ToolNotFound(
                f"The app does not give {name} to its users over MCP.",
                remediation="Ask whoever runs the app to name the tools with op:config_user_tools.",
                details={"name": name[:128]},
            )
        if not tool.access.admits(client.caller):
            return Forbidden(f"This credential may not use {name}. Who may: {tool.access.description}")
        if client.role == APPROVER and not is_for_approvers(tool.access):
            return Forbidden(
                f"{name} needs the role `member`; this account has `approver`, and only decides about calls."
            )
        exceeded_limit = key_limits.find_exceeded_limit(client.caller, tool)
        if exceeded_limit is not None:
            return KeyLimited(exceeded_limit, details={"tool": name})
        return ToolNotFound(
            f"The address of this connection leaves {name} out.",
            remediation="Ask your person for a connection with other toolsets, or without read_only.",
            details={"name": name[:128]},
        )

    async def _search_tools(
        self, client: McpClient, offer: Offer, arguments: dict[str, Any], protocol_version: str
    ) -> types.CallToolResult:
        query, limit, detail = meta_tools.parse_search(arguments)
        matches = await self._catalogue.index.rank(query, offer.tools)
        tools = [tool for tool, _ in matches if isinstance(tool, Tool) and tool.name in offer.tools]
        # What is not to be had here is told only where it is likely to be what was meant.
        elsewhere = [
            candidate
            for candidate, likeness in matches[:_MOST_ELSEWHERE]
            if get_name(candidate) not in offer.tools and likeness >= NEAR
        ]
        is_elsewhere = bool(elsewhere) and elsewhere[0] is matches[0].candidate
        if is_elsewhere:
            # What is hardly similar would be called all the same: a tool that empties a store, for "every night".
            near = [candidate for candidate, likeness in matches if likeness >= NEAR]
            tools = [tool for tool in tools if tool in near]
        result: dict[str, Any] = {"tools": offer.describe_found(tools[:limit], detail=detail)}
        if elsewhere:
            result["elsewhere"] = [self._say_where(candidate, client, offer) for candidate in elsewhere]
        if is_elsewhere:
            result = {"hint": meta_tools.ELSEWHERE, **result}
        elif not tools:
            result |= {"hint": meta_tools.NOTHING_FOUND, "families": offer.families}
        elif any("inputSchema" not in tool for tool in result["tools"]):
            result["hint"] = meta_tools.MORE
        return results.render_search(result, client, protocol_version)

    def _say_where(self, candidate: Candidate, client: McpClient, offer: Offer) -> dict[str, str]:
        """Says where something is that no tool of a client does."""
        if isinstance(candidate, Unbuilt):
            error = candidate.build_error(candidate.paths[0])
            return {"what": candidate.what, "where": f"Not built yet. {name_operations(error.remedy)}"}
        error = self._build_missing_error(candidate.name, client, offer)
        where = f"{error.message} {name_operations(error.remedy)}"
        return {"what": f"{candidate.name}: {name_operations(candidate.summary)}", "where": where}

    async def _wait_for_decision(self, client: McpClient, approval_id: str, responses: Any) -> None:
        """Waits for the decision on a call that is repeated after its person was shown where to decide.

        The state is sealed and bound to caller, tool and arguments (the SDK has opened it). The client's responses
        decide nothing, since they come through the credential that proposed the call.
        """
        approvals = self._registry.services.approvals
        actions = [getattr(answer, "action", None) for answer in (responses or {}).values()]
        was_declined = "decline" in actions or "cancel" in actions
        patience = 0 if was_declined else PATIENCE_SECONDS
        try:
            status = await approvals.wait_for_outcome(approval_id, client.caller, patience)
        except STORE_OUTAGES as exc:
            raise translate_outage(exc, client.context.request_id) from exc
        if status is None:
            raise ApprovalStateSpent


def _build_unknown(name: str, offer: Offer) -> ToolNotFound:
    similar = get_close_matches(name[:128], offer.tools, 3)
    nearest = f" The nearest: {', '.join(similar)}." if similar else ""
    remedy = "search_tools finds tools by what they do." if offer.has_search else "List the tools."
    # Some clients show the message alone.
    return ToolNotFound(ToolNotFound.summary + nearest, remediation=remedy, details={"name": name[:128]})


def _build_not_for_models(tool: Tool) -> ToolNotFound:
    """Builds the error for a tool that models are not offered, which says where it is instead."""
    if tool.rest is None:
        return ToolNotFound(
            f"{tool.name} is not called over MCP: the server calls it itself.",
            remediation="search_tools finds the tools that you can call.",
            details={"name": tool.name},
        )
    return ToolNotFound(
        f"{tool.name} is not called over MCP, only over REST: {tool.rest.method} {tool.rest.path}.",
        remediation="A page, a program or a person calls it there; /docs/guides/tools.md describes it.",
        details={"name": tool.name},
    )


def report_unexpected(client: McpClient, tool: str) -> types.CallToolResult:
    """Logs the exception that is being handled, and returns an answer that holds nothing of it."""
    _log.exception("unexpected error", extra={"request_id": client.context.request_id, "tool": tool})
    return results.render_failure(Internal())


def _add_headers(arguments: dict[str, Any], client: McpClient, tool: Tool) -> dict[str, Any]:
    """Returns the arguments with those that headers give and the model did not."""
    for name, header in tool.mcp_headers.items():
        value = client.read_header(header.encode())
        if value is not None and name not in arguments:
            arguments = {**arguments, name: value.decode("latin-1")}
    return arguments


def _supports_url_elicitation(ctx: Any) -> bool:
    """Returns whether the client can show its person a URL. With the 2026 protocol it says so in each request."""
    if ctx.protocol_version < "2026":
        return False
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities and capabilities.elicitation
    return bool(elicitation and elicitation.url is not None)


def _request_decision(error: ApprovalRequired) -> types.InputRequiredResult:
    """Asks the client to show its person where to decide; the call continues when the client repeats it."""
    request = types.ElicitRequest(
        params=types.ElicitRequestURLParams(
            message=f"A call waits for your approval.\n{error.details['summary']}", url=error.details["decide_at"]
        )
    )
    return types.InputRequiredResult(
        input_requests={_APPROVAL: request}, request_state=str(error.details["approval_id"])
    )
