"""What a running function asks of the platform: the members of `ctx`, `fetch`, and calls of other functions.

Everything goes through the registry, as the caller for whom the function runs, so that it can do nothing that a request
with the same right could not do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from baobab.runtime.functions.answer import FunctionAnswer, Report
from baobab.runtime.functions.host import Acting, FetchRequest, FetchResponse, HostRefusal
from baobab.runtime.functions.program import FunctionRequest
from baobab.tools.core import Anonymous, BaobabError, Caller
from baobab.tools.core.context import RequestContext
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.functions.errors import PublicNotFound, ReadOnlyRefused
from baobab.tools.functions.fetching import fetch
from baobab.tools.functions.identity import act_as_app, act_as_user
from baobab.tools.functions.live import FunctionCache
from baobab.tools.functions.members import MEMBERS, MemberInvalid, read_user_id

if TYPE_CHECKING:
    from baobab.tools.functions.invoking import Answer, Invocation

    Invoke = Callable[["Invocation"], Awaitable["Answer"]]


class FunctionHost:
    """The host of one invocation."""

    def __init__(self, invocation: "Invocation", row: Any, invoke: "Invoke") -> None:
        """invoke: calls another function."""
        self._invoke = invoke
        self.invocation = invocation
        self.row = row
        identity = invocation.identity
        services = invocation.services
        self.context = RequestContext(
            "function",
            invocation.request_id,
            invocation.ip,
            base_url=services.options.base_url,
            # What strangers had the function write is theirs.
            brings_outside_text=not identity.runs_app,
        )
        self.context.trigger = invocation.cause

    async def call(self, member: str, arguments: list[Any], acting: Acting) -> Any:
        """Does what a member of `ctx` asks. Raises HostRefusal."""
        found_member = MEMBERS.get(member)
        if found_member is None and member.startswith("ai.meetings."):
            found_member = MEMBERS["ai.meetings"]
            arguments = [member.removeprefix("ai.meetings."), *arguments]
        if found_member is None:
            raise HostRefusal("HOST_MEMBER_UNKNOWN", f"ctx has no member {member[:80]}.", "See docs/functions.md.")
        try:
            if self.invocation.read_only and not found_member.reads(arguments):
                raise ReadOnlyRefused(f"ctx.{member} changes something, and agent_tool_mode is read_only.")
            return await found_member.work(self, self.find_caller(acting), *arguments[: found_member.most])
        except BaobabError as error:
            raise refuse(error) from error
        except MemberInvalid as exc:
            raise HostRefusal("VALIDATION_INVALID_INPUT", f"ctx.{member}: {exc}", "See docs/functions.md.") from exc
        except STORE_OUTAGES as exc:
            raise refuse(translate_outage(exc, self.invocation.request_id, member)) from exc

    def find_caller(self, acting: Acting) -> Caller:
        """Returns with whose right a member acts: the invocation's own, a user's, or a visitor's."""
        app = self.invocation.app
        match acting:
            case None:
                return self.invocation.identity.acting
            case ("user", user_id):
                return act_as_user(app, self.row.id, read_user_id(user_id))
        return Anonymous(app.id)

    @property
    def service(self) -> Caller:
        """The caller with the app's own right."""
        return act_as_app(self.invocation.app, self.row.id)

    async def use(self, tool: str, caller: Caller, **arguments: Any) -> Any:
        """Calls a tool in the function's app."""
        return await self.use_at_large(tool, caller, app_id=self.invocation.app.id, **arguments)

    async def use_at_large(self, tool: str, caller: Caller, **arguments: Any) -> Any:
        """Calls a tool that names no app, and returns its result as JSON."""
        registry = self.invocation.registry
        found_tool = registry.find(tool)
        result, _ = await registry.run(found_tool, arguments, caller, self.context)
        return None if result is None else from_json(found_tool.encode(result))

    def has_tool(self, name: str) -> bool:
        """Returns whether the server has a tool."""
        try:
            self.invocation.registry.find(name)
        except BaobabError:
            return False
        return True

    def takes(self, tool: str, argument: str) -> bool:
        """Returns whether a tool takes an argument."""
        return argument in self.invocation.registry.find(tool).arguments.model_fields

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Makes the request of `fetch`. Raises HostRefusal."""
        try:
            return await fetch(self, request)
        except BaobabError as error:
            raise refuse(error) from error

    async def invoke(self, name: str, request: FunctionRequest) -> FunctionAnswer:
        """Calls another function of the app. Raises HostRefusal."""
        invocation = self.invocation
        try:
            row = (await invocation.services.of(FunctionCache).get(invocation.app.id)).rows.get(name)
            if row is None:
                raise PublicNotFound(f"The app has no function named `{name[:100]}`.")
            if invocation.read_only and row.agent_tool_mode != "read_only":
                raise ReadOnlyRefused(f"ctx.invoke: {row.name} is read_write, and agent_tool_mode here is read_only.")
            answer = await self._invoke(
                replace(
                    invocation,
                    name=row.name,
                    request=replace(request, url=f"{invocation.services.options.base_url}/{row.name}"),
                    identity=invocation.identity.through_function(),
                    trigger="invoke",
                    # What it remembers is its own.
                    id=invocation.services.ids.uuid(),
                    path=f"/{row.name}",
                    number=None,
                    hops=invocation.hops + 1,
                    timeout_ms=None,
                )
            )
        except BaobabError as error:
            raise refuse(error) from error
        return FunctionAnswer(answer.status, answer.headers, answer.body, _report_nothing())


def _report_nothing() -> Awaitable[Report]:
    """The called function has a row of its own in the log."""
    report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
    report.set_result(Report(0.0, 0.0, 0.0, None))
    return report


def refuse(error: BaobabError) -> HostRefusal:
    """Returns an error as the function gets it."""
    return HostRefusal(error.code, error.message, error.remedy)


def describe_refusal(error: BaobabError) -> Mapping[str, Any]:
    """Returns an error as a body."""
    return {"error": {"code": error.code, "message": error.message, "remediation": error.remedy}}
