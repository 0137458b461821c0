"""Calls: `tools/call`, from its parameters to its result, for the visitor that makes it."""

import logging
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from baobab.mcp_server import meta_tools, results
from baobab.mcp_server.catalogue import Catalogue, Offer
from baobab.mcp_server.errors import ApprovalStateSpent
from baobab.mcp_server.heartbeat import Heartbeat
from baobab.mcp_server.sessions import Sessions
from baobab.mcp_server.visitor import Visitor, visitor
from baobab.tools.core.auth import key_limits
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import ApprovalRequired, BaobabError, Forbidden, Internal, KeyLimited, ToolNotFound
from baobab.tools.core.registry import Registry

_APPROVAL = "approval"
PATIENCE_SECONDS = 20.0

_log = logging.getLogger(__name__)


class Calls:
    def __init__(self, registry: Registry, catalogue: Catalogue, sessions: Sessions) -> None:
        self._sessions = sessions
        self._registry = registry
        self._catalogue = catalogue

    async def __call__(
        self, ctx: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """What the tool answered, or how it refused. MCPError for a tool that the visitor is not offered."""
        who = visitor(ctx)
        offer = self._catalogue.offer(who)
        try:
            if params.request_state is not None:
                await self._resumed(who, params.request_state, params.input_responses)
            if params.name == meta_tools.SEARCH and offer.searches:
                return await self._searched(who, offer, params.arguments or {}, ctx.protocol_version)
            tool, arguments = await self.chosen(who, offer, params.name, params.arguments or {})
            with self._sessions.running(who.session, ctx.request_id):
                result = await self._run(tool, arguments, who, ctx, params)
            results.require_success(tool, result)
        except ApprovalRequired as error:
            if params.request_state is None and _opens_addresses(ctx):
                return _asked(error)
            return results.failed(error)
        except BaobabError as error:
            through = params.name == meta_tools.CALL and offer.searches
            if isinstance(error, ToolNotFound | ApprovalStateSpent) and not through:
                raise MCPError(types.INVALID_PARAMS, error.message, results.told(error)) from None
            return results.failed(error)
        except Exception:  # noqa: BLE001 - where this door turns what nobody expected into an answer
            return unexpected(who, params.name)
        return results.succeeded(tool, result, who, ctx.protocol_version)

    async def _run(
        self, tool: Tool, arguments: dict[str, Any], who: Visitor, ctx: Any, params: types.CallToolRequestParams
    ) -> Any:
        """The result of a tool. A client that asked for progress hears of it all the time that the call takes."""
        if "progress_token" not in (params.meta or {}):
            return (await self._registry.run(tool, arguments, who.caller, who.door))[0]
        heartbeat = Heartbeat(ctx.session.report_progress, tool.name)
        async with heartbeat.beating():
            door = replace(who.door, report=heartbeat.report)
            return (await self._registry.run(tool, arguments, who.caller, door))[0]

    async def chosen(
        self, who: Visitor, offer: Offer, name: str, arguments: dict[str, Any]
    ) -> tuple[Tool, dict[str, Any]]:
        """The tool that is meant and its arguments. ToolNotFound for one that there is not, or not in this view.

        KeyLimited or Forbidden for one that the visitor's credential keeps it from: which tools there are is no secret.
        """
        if name == meta_tools.CALL and offer.searches:
            name, arguments = meta_tools.called(arguments)
        tool = offer.tools.get(name)
        if tool is None:
            error = self._missing(name, who, offer)
            refused = self._registry.tools.get(name)
            if refused is not None and not isinstance(error, ToolNotFound):
                given = meta_tools.fixed(arguments, who, refused.app_parameter)
                await self._registry.record_refusal(refused, given, who.door, error)
            raise error
        return tool, meta_tools.fixed(arguments, who, tool.app_parameter)

    def _missing(self, name: str, who: Visitor, offer: Offer) -> BaobabError:
        """Why a tool is not offered to a visitor."""
        tool = self._registry.tools.get(name)
        if tool is None or not tool.mcp:
            near = get_close_matches(name[:128], offer.tools, 3)
            nearest = f" The nearest: {', '.join(near)}." if near else ""
            finds = "search_tools finds tools by what they do." if offer.searches else "List the tools."
            # Some clients show the message alone.
            message = ToolNotFound.summary + nearest
            return ToolNotFound(message, remediation=finds, details={"name": name[:128]})
        if not tool.access.admits(who.caller):
            return Forbidden(f"This credential may not use {name}. Who may: {tool.access.description}")
        passed = key_limits.passed(who.caller, tool)
        if passed is not None:
            return KeyLimited(f"{passed} {name} is outside of that.")
        return ToolNotFound(
            f"The address of this connection leaves {name} out.",
            remediation="Ask your person for a connection with other toolsets, or without read_only.",
            details={"name": name[:128]},
        )

    async def _searched(
        self, who: Visitor, offer: Offer, arguments: dict[str, Any], protocol_version: str
    ) -> types.CallToolResult:
        query, limit = meta_tools.sought(arguments)
        best = await self._catalogue.index.best(query, limit, offer.tools)
        found: dict[str, Any] = {"tools": [offer.describe(tool, text=True) for tool in best]}
        if not best:
            found |= {"hint": meta_tools.NOTHING_FOUND, "families": offer.families}
        return results.found(found, who, protocol_version)

    async def _resumed(self, who: Visitor, approval_id: str, responses: Any) -> None:
        """Wait a while for the decision on a call that is made again after its person was shown where to decide.

        The state is sealed and bound to caller, tool and arguments (the SDK's boundary has opened it). The answers
        that came with it decide nothing: they came through the credential that proposed the call.
        """
        approvals = self._registry.services.approvals
        actions = [getattr(answer, "action", None) for answer in (responses or {}).values()]
        declined = "decline" in actions or "cancel" in actions
        status = await approvals.wait_for_outcome(approval_id, who.caller, 0 if declined else PATIENCE_SECONDS)
        if status is None:
            raise ApprovalStateSpent


def unexpected(who: Visitor, tool: str) -> types.CallToolResult:
    """The answer to what nobody expected: nothing of the exception that is being handled, which goes into the log."""
    _log.exception("unexpected error", extra={"request_id": who.door.request_id, "tool": tool})
    return results.failed(Internal())


def _opens_addresses(ctx: Any) -> bool:
    """Whether the client can show its person an address (2026 protocol: it says so with each request)."""
    if ctx.protocol_version < "2026":
        return False
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities and capabilities.elicitation
    return bool(elicitation and elicitation.url is not None)


def _asked(error: ApprovalRequired) -> types.InputRequiredResult:
    """Ask the client to show its person where to decide; the call goes on when the client makes it again."""
    request = types.ElicitRequest(
        params=types.ElicitRequestURLParams(
            message=f"A call waits for your approval.\n{error.details['summary']}", url=error.details["decide_at"]
        )
    )
    return types.InputRequiredResult(
        input_requests={_APPROVAL: request}, request_state=str(error.details["approval_id"])
    )
