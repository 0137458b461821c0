"""The registry: all tools by name, and the one way to call them."""

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote

from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError, NoResultFound

from baobab.storage.sql.database import DatabaseUnavailable, Unit
from baobab.tools.core.app_events import AppEvent
from baobab.tools.core.auth import key_limits
from baobab.tools.core.auth.access import authorise_call, is_for_approvers, least_role, require_sign_in
from baobab.tools.core.auth.callers import Account, ActingApp, Anonymous, Caller, EndUser, ScopedKey
from baobab.tools.core.auth.proposers import proposer_name
from baobab.tools.core.auth.roles import APPROVER, Role, rank
from baobab.tools.core.binding import RegistrationError
from baobab.tools.core.call import ApprovedAttempt, Call, GraphName, Preview, Tool
from baobab.tools.core.context import RequestContext, WouldDestroy
from baobab.tools.core.errors import (
    AppNotFound,
    ApprovalRequired,
    BaobabError,
    Internal,
    Naming,
    ToolNotFound,
    Unavailable,
)
from baobab.tools.core.guard.approvals import MeaningChanged, StreamCannotWait
from baobab.tools.core.guard.changes import bound_changes
from baobab.tools.core.guard.proposals import Proposals
from baobab.tools.core.invalid import find_missing, find_nulls, invalid, leave_out
from baobab.tools.core.job import JobKind
from baobab.tools.core.limits.rate_limits import Allowance, Remaining, network
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.services import Services
from baobab.tools.core.stream import Body
from baobab.tools.core.tenancy import STRANGER, set_tenant
from baobab.tools.core.toolset import Toolset
from baobab.tools.core.waiting import DOORS, WAIT, WaitingRoom, Waits, build_pauses, pause_or_leave

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Receives every call that has ended, for metrics and traces."""

    def __call__(self, tool: Tool, context: RequestContext, outcome: str, seconds: float) -> None: ...


class Registry:
    """Built once from the toolsets. A duplicate name or route raises RegistrationError at once."""

    def __init__(self, toolsets: Iterable[Toolset]) -> None:
        self.toolsets = tuple(toolsets)
        self.tools: dict[str, Tool] = {}
        self._graph_names: dict[str, tuple[Tool, GraphName]] = {}
        self.jobs: dict[str, JobKind] = {}
        self.app_events: dict[str, AppEvent] = {}
        """What triggers of apps can wait for, by name."""
        self.gauges = tuple(gauge for toolset in self.toolsets for gauge in toolset.gauges.values())
        routes: dict[tuple[str, str], str] = {}
        for toolset in self.toolsets:
            for kind in toolset.jobs.values():
                if kind.name in self.jobs:
                    raise RegistrationError(f"{kind.name}: two toolsets have a job of this name")
                self.jobs[kind.name] = kind
            for event in toolset.events:
                if event.name in self.app_events:
                    raise RegistrationError(f"{event.name}: two toolsets declare an event of this name")
                self.app_events[event.name] = event
            for tool in toolset.tools.values():
                if tool.name in self.tools:
                    raise RegistrationError(f"{tool.name}: two toolsets have a tool of this name")
                self.tools[tool.name] = tool
                for graph_name in tool.graph_names:
                    if graph_name.name in self._graph_names:
                        raise RegistrationError(f"{tool.name}: graphs call another tool {graph_name.name} already")
                    self._graph_names[graph_name.name] = (tool, graph_name)
                if tool.rest is None:
                    continue
                for path in (tool.rest.path, *tool.rest.also):
                    route = (tool.rest.method, _shape(path))
                    if route in routes:
                        raise RegistrationError(f"{tool.name}: {routes[route]} has the route {' '.join(route)} already")
                    routes[route] = tool.name
        self.observers: list[Observer] = []
        self._services: Services | None = None
        self._waiting_room = WaitingRoom()

    def bind(self, services: Services) -> "Registry":
        """Attaches the services. Until then tools can be listed and described, but not called."""
        self._services = services
        return self

    @property
    def services(self) -> Services:
        """The services of the application. Raises RuntimeError before they are bound."""
        if self._services is None:
            raise RuntimeError("the registry has no services yet")
        return self._services

    def find(self, name: str) -> Tool:
        """Returns the tool with a name. Raises ToolNotFound."""
        tool = self.tools.get(name)
        if tool is None:
            raise ToolNotFound(details={"name": name[:128]})
        return tool

    def find_for_graphs(self, name: str) -> tuple[Tool, GraphName] | None:
        """Returns the tool that a graph uses by a name, with that name's rules; None if there is none."""
        return self._graph_names.get(name)

    def naming(self, context: RequestContext) -> Naming:
        """Returns how an interface's errors name operations: by method and path over REST, by the tool's name
        elsewhere.
        """
        return self.name_by_route if context.name == "rest" else self.name_by_tool

    def name_by_route(self, name: str) -> str:
        """Returns the method and path of an operation, or the tool's name if it has no route."""
        tool = self.tools.get(name)
        return name if tool is None or tool.rest is None else f"{tool.rest.method} {tool.rest.path}"

    def name_by_tool(self, name: str) -> str:
        """Returns the name of a tool; method and path of one that models are not offered."""
        tool = self.tools.get(name)
        return name if tool is None or tool.mcp else self.name_by_route(name)

    def visible_to(self, caller: Caller, role: Role | None = None) -> list[Tool]:
        """Returns the tools that models of this caller are offered, by name. role: of the account behind it."""
        return sorted(
            (
                t
                for t in self.tools.values()
                if t.mcp
                and t.access.admits(caller)
                and (role != APPROVER or is_for_approvers(t.access))
                and not key_limits.find_exceeded_limit(caller, t)
            ),
            key=lambda t: t.name,
        )

    def may_call(self, name: str, caller: Caller, role: Role | None) -> bool:
        """Returns whether a tool may be open to a caller whose account has this role in the organisation concerned.

        What it depends on beside that, such as whose key it is, the call itself finds out.
        """
        tool = self.find(name)
        if not tool.access.credential:
            return True
        is_role_enough = role is not None and rank(role) >= rank(least_role(tool.access))
        return is_role_enough and tool.access.admits(caller) and not key_limits.find_exceeded_limit(caller, tool)

    def prepare(self) -> None:
        """Builds the schemas that tools build lazily. It runs in a thread while the server already answers."""
        for tool in self.tools.values():
            tool.prepare()

    def describe_results(self) -> None:
        """Builds the schemas of the results of all tools, which takes a third of a second of CPU the first time: run it
        in a thread.
        """
        for tool in self.tools.values():
            _ = tool.output_schema

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        caller: Caller,
        context: RequestContext,
        *,
        unit: Unit | None = None,
    ) -> Any:
        """Calls a tool and returns its result. Raises BaobabError, and then nothing has changed."""
        return (await self.run(self.find(name), arguments, caller, context, unit=unit))[0]

    async def run(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        caller: Caller,
        context: RequestContext,
        *,
        unit: Unit | None = None,
        approved_attempt: ApprovedAttempt | None = None,
    ) -> tuple[Any, Call]:
        """Does the same as `call`, and also returns the record of the call, from which REST reads the remaining
        allowance.

        approved_attempt: the attempt at an approved call that this call is.
        """
        services = self.services
        is_nested = unit is not None
        if not is_nested and approved_attempt is None:
            # A proposed call is stored with them, so that it means the same when it is approved.
            arguments = tool.complete(arguments, context.name)
        if unit is not None and tool.effect != "read" and not unit.writes:
            raise RuntimeError(f"{tool.name}: a read may not invoke a tool that changes something")
        work = unit or services.database.build_unit(write=tool.effect != "read" or approved_attempt is not None)
        call = Call(self, services, tool, caller, context, work)
        call.approved_attempt = approved_attempt
        call.is_nested = is_nested
        started_at = time.perf_counter()
        status = "ok"
        try:
            result = await self._steps(call, arguments, is_nested)
            if call.wait_seconds and not is_nested and approved_attempt is None:
                result = await self._wait(call, tool.waits, arguments, result)
        except BaobabError as error:
            status = error.code
            error.naming = self.naming(context)
            if not is_nested:
                await self.record_refusal(tool, arguments, context, error, caller)
            raise
        except BaseException as exc:
            status = "error"
            if not is_nested and isinstance(exc, Exception):
                await self.record_refusal(tool, arguments, context, Internal(), caller)
            raise
        finally:
            if self.observers:
                seconds = time.perf_counter() - started_at
                for observe in self.observers:
                    observe(tool, context, status, seconds)
        return result, call

    async def _wait(self, call: Call, waits: Waits | None, arguments: Mapping[str, Any], result: Any) -> Any:
        """Waits for the end of the work that a call has started or read, and returns what the call answers then.

        The call has been committed: whatever happens here, the work goes on, and is not started again.
        """
        assert waits is not None
        tool = call.tool if waits.reads is None else self.find(waits.reads)
        naming = self.naming(call.context)
        if call.context.name not in DOORS:
            call.warn("It was not waited for the end: a run of an agent must not wait.")
            return result
        values = {name: value for name, value in arguments.items() if name != WAIT}
        if waits.reads is not None:
            names = tool.arguments.model_fields.keys()
            values = {name: value for name, value in values.items() if name in names}
            values |= {} if waits.find is None else waits.find(result)
        leave = call.context.wait_until_left
        tenant = _tenant(call)
        owner = tenant if isinstance(call.caller, Anonymous) else proposer_name(call.caller)
        with self._waiting_room.hold_place(owner, tenant) as has_place:
            if not has_place:
                call.warn(
                    f"It was not waited for the end: too many calls wait already. Read it later ({naming(tool.name)})."
                )
                return result
            leaving = None if leave is None else asyncio.ensure_future(leave())
            try:
                state, is_over = await self._wait_for_end(call, waits, tool, values, leaving)
            except BaobabError as error:
                call.warn(f"It was not waited for the end: {error.message}")
                return result
            finally:
                if leaving is not None:
                    leaving.cancel()
        if not is_over:
            call.warn(f"It has not ended yet. Call {naming(tool.name)} with `{WAIT}` to go on waiting.")
        return state if waits.answer is None else waits.answer(result, state)

    async def _wait_for_end(
        self, call: Call, waits: Waits, tool: Tool, values: Mapping[str, Any], leaving: "asyncio.Task[None] | None"
    ) -> tuple[Any, bool]:
        """Returns the last state of the work, and whether it is over."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + call.wait_seconds
        for pause in build_pauses():
            unit = self.services.database.build_unit(write=False)
            try:
                state, reading_call = await self.run(tool, values, call.caller, call.context, unit=unit)
            except BaseException as exc:
                await unit.rollback(exc)
                raise
            if not unit.is_untouched:
                await unit.commit()
            left = deadline - clock()
            if waits.is_over(state) or left <= 0 or await pause_or_leave(leaving, min(pause, left)):
                call.warn(*(reading_call.warnings or ()))
                return state, waits.is_over(state)
        raise AssertionError("there is always another pause")

    async def record_refusal(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: RequestContext,
        error: BaobabError,
        caller: Caller | None = None,
    ) -> None:
        """Records a refusal for the developer of its app, if the tool's toolset keeps refusals.

        Calls record their own refusals; interfaces record what they refuse before a call, perhaps without a caller. A
        refusal for an app that does not exist is not recorded, because anybody could fill the table. Neither is a call
        that waits for approval: it is not refused, and its caller asks again and again.
        """
        toolset = tool.toolset
        if toolset.keeps_failures is None or isinstance(error, ApprovalRequired):
            return
        try:
            app = await self.services.directory.app(arguments.get(tool.app_parameter or ""))
        except (AppNotFound, DatabaseUnavailable):
            return
        method, path = (context.method, context.path) if context.method else (context.name.upper(), tool.name)
        subject = arguments.get(toolset.keeps_failures)
        if isinstance(subject, str) and not subject.isprintable():
            subject = quote(subject[:600], safe="", errors="backslashreplace")
        code = toolset.envelope.code(type(error))
        user_id = caller.user_id if isinstance(caller, EndUser) else None
        self.services.failures.record(app, toolset.name, method, path, error.status, code, subject, user_id)

    async def preview(
        self, tool: Tool, arguments: Mapping[str, Any], caller: Caller, context: RequestContext, unit: Unit
    ) -> Preview:
        """Returns what a call would do now, and changes nothing.

        Raises what the call would be refused with. unit: the unit of the read that asks.
        """
        call = Call(self, self.services, tool, caller, context, unit)
        key_limits.check_limits(caller, tool, arguments.get(tool.app_parameter or ""))
        preview = await _ask_tool(call, await self._admit_call(call, arguments, is_nested=True))
        return preview._replace(changes=None if preview.changes is None else bound_changes(preview.changes))

    async def admit(self, tool: Tool, arguments: Mapping[str, Any], caller: Caller, context: RequestContext) -> None:
        """Raises what a call would be refused with whatever its body says, before the body is read.

        Nothing is taken from the rate limit here; it is only looked whether something is left.
        """
        asking_services = replace(self.services, limits=Remaining(self.services.limits))
        call = Call(self, asking_services, tool, caller, context, self.services.database.build_unit(write=False))
        try:
            if tool.app_parameter is not None:
                call.app = await self.services.directory.app(arguments.get(tool.app_parameter))
            if tool.access.anonymous:
                require_sign_in(call)
            await authorise_call(call, arguments)
            if tool.access.credential:
                key_limits.check_limits(caller, tool, None if call.app is None else call.app.id)
            if tool.limit is not None and isinstance(outcome := tool.limit.spend(call, arguments), Awaitable):
                await outcome
        finally:
            if not call.unit.is_untouched:
                await call.unit.commit()
        # From here on, shared resources are counted for this tenant.
        set_tenant(_tenant(call))

    async def recheck(self, call: Call) -> None:
        """Raises what a long-lived call, such as an open stream, would be refused with if it were made now."""
        present_call = Call(
            self, self.services, call.tool, call.caller, call.context, self.services.database.build_unit(write=False)
        )
        arguments = {} if call.app is None else {call.tool.app_parameter or "": call.app.id}
        try:
            if call.app is not None:
                present_call.app = await self.services.directory.app(call.app.id)
            await authorise_call(present_call, arguments)
            require_sign_in(present_call)
            key_limits.check_limits(call.caller, call.tool, None if call.app is None else call.app.id)
        finally:
            if not present_call.unit.is_untouched:
                await present_call.unit.commit()

    async def _ask_person(self, call: Call, arguments: Mapping[str, Any], values: dict[str, Any]) -> tuple[bool, Any]:
        """Proposes a call, or finds what became of it when it was proposed before. Returns whether there is a result,
        and the result. Raises what `propose` raises.
        """
        proposals = call.services.part(Proposals)
        meaning = None if call.tool.meaning is None else await call.tool.meaning(call, **values)
        if _has_stream(values):
            raise StreamCannotWait
        # A proposal has a transaction of its own: this call must not hold a write lock that it would wait for.
        await call.unit.commit()
        if not call.waits_for_approval:
            # A repeated call that was approved gets its outcome, and is not made a second time.
            is_approved = await proposals.is_approved(call, arguments, meaning)
            return is_approved, await proposals.propose(call, arguments, meaning) if is_approved else None
        preview = await self._foresee(call, arguments, values, meaning)
        if preview.answer is not None:
            return True, preview.answer
        call.warn(*preview.warnings)
        return True, await proposals.propose(call, arguments, meaning, preview.label)

    async def _steps(self, call: Call, arguments: Mapping[str, Any], is_nested: bool) -> Any:
        try:
            values = await self._admit_call(call, arguments, is_nested)
            if call.tool.effect == "external":
                # Not even proposed: whoever approves it later may not know that it was meant for a copy.
                call.services.liveness.require_live()
            # Nothing else can make a call wait for a person.
            if call.caller.limits is not None or call.context.step is not None:
                need_not_ask = call.need_not_ask_any_more and not _has_stream(values)
                if not is_nested and call.approved_attempt is None and (call.waits_for_approval or need_not_ask):
                    is_answered, answer = await self._ask_person(call, arguments, values)
                    if is_answered:
                        return answer
                if call.tool.destructive_when is not None and call.needs_destroy_approval:
                    return await self._work_or_propose(call, values, arguments)
            if call.approved_attempt is not None and not is_nested and call.approved_attempt.meaning is not None:
                meaning = None if call.tool.meaning is None else await call.tool.meaning(call, **values)
                if meaning != call.approved_attempt.meaning:
                    raise MeaningChanged
            return await self._work(call, values, is_nested)
        except (IntegrityError, NoResultFound) as exc:
            # The app may have been deleted during the call.
            if call.app is not None and await call.services.directory.is_gone(call.app.id):
                raise AppNotFound from exc
            # A call of another tenant changed the same data at this moment. The next attempt sees that change.
            _log.exception("%s: the rows have changed meanwhile", call.tool.name)
            raise Unavailable("Another call changed the same data at the same time.") from exc
        except STORE_OUTAGES as exc:
            raise translate_outage(exc, call.context.request_id, call.tool.name) from exc

    async def _foresee(
        self, call: Call, arguments: Mapping[str, Any], values: dict[str, Any], meaning: str | None
    ) -> Preview:
        """Returns what a call that waits for a person would do.

        A call that could only fail once a person has approved it is refused at once, as its preview knows. One that was
        proposed before is not asked again: its outcome may be waiting, and may be why it would fail now.
        """
        tool, step = call.tool, call.context.step
        if tool.preview is None or await call.services.part(Proposals).has_proposal(call, arguments, meaning):
            return Preview()
        lends_right = step is not None and step.app_right is not None
        try:
            # A proposal has a transaction of its own, which must not wait for this one's write lock.
            async with call.reading_apart() as preview_call:
                preview = await _ask_tool(preview_call, values)
        except BaobabError:
            if not lends_right:
                raise
            return Preview()
        if lends_right:
            # Nothing that the app may see is told to the caller before somebody has approved the call.
            return Preview(label=preview.label)
        # A step that needs approval asks even if its call would change nothing, because its author wants to see it.
        return preview._replace(answer=None) if step is not None and step.requires_approval else preview

    async def _work_or_propose(self, call: Call, values: dict[str, Any], arguments: Mapping[str, Any]) -> Any:
        """Makes the call if it destroys nothing now; else proposes it, like a call that is always destructive."""
        meaning = None if call.tool.meaning is None else await call.tool.meaning(call, **values)
        if not await call.services.part(Proposals).has_proposal(call, arguments, meaning):
            try:
                return await self._work(call, values, is_nested=False)
            except WouldDestroy:
                # Its changes have been rolled back.
                pass
        call.effect = "destructive"
        await call.unit.commit()
        return await call.services.part(Proposals).propose(call, arguments, meaning)

    async def _admit_call(self, call: Call, arguments: Mapping[str, Any], is_nested: bool) -> dict[str, Any]:
        """Authorises, limits and validates a call, and returns its validated arguments."""
        tool = call.tool
        is_anonymous = isinstance(call.caller, Anonymous)
        if not is_anonymous and not tool.names_fit(arguments):
            # Before any look-up: a caller who misspells `app_id` must not get the error that the app does not exist.
            _validate_arguments(tool, arguments)
        if tool.app_parameter is not None:
            directory, app_id = call.services.directory, arguments.get(tool.app_parameter)
            # The answer is nearly always in memory, and reading it is cheaper without a coroutine.
            call.app = directory.cached_app(app_id) or await directory.app(app_id)
        if is_anonymous and tool.access.anonymous:
            require_sign_in(call)
        if not is_nested and call.unit.writes:
            call.unit.lock_for(_lock_owner(call))
        await authorise_call(call, arguments)
        if not is_nested:
            set_tenant(_tenant(call))
        if call.caller.limits is not None and not is_nested and tool.access.credential:
            key_limits.check_limits(call.caller, tool, None if call.app is None else call.app.id)
        if tool.limit is not None and not is_nested and call.approved_attempt is None:
            allowance = tool.limit.spend(call, arguments)
            # A limit that is counted in this process answers without a coroutine, on the hot path.
            if allowance is not None and not isinstance(allowance, Allowance):
                allowance = await allowance
            call.allowance = allowance
        values = _validate_arguments(tool, arguments)
        if tool.waits is not None:
            call.wait_seconds = values.pop(WAIT)
        if tool.widens and not is_nested:
            key_limits.check_arguments(call.caller, tool, values, arguments)
        if tool.spends and not is_nested:
            key_limits.check_spending(call.caller, tool, values)
        return values

    async def _work(self, call: Call, values: dict[str, Any], is_nested: bool) -> Any:
        tool, attempt = call.tool, call.approved_attempt
        if isinstance(call.caller, ActingApp) and (attempt is None or attempt.right is None):
            raise RuntimeError(f"{tool.name}: the app acts only in a call that somebody has approved as such")
        try:
            result = await tool.handler(call, **values)
            if tool.audit is not None:
                # What was done with the app's right is recorded one by one.
                if tool.audit.tallied and (attempt is None or attempt.right is None):
                    call.services.audit_log.tally(call, values)
                else:
                    await call.services.audit_log.record(call, values)
            if call.approved_attempt is not None and not is_nested:
                await call.approved_attempt.finish(call, result)
            if not is_nested and not call.unit.is_untouched:
                await call.unit.commit()
        except BaseException as exc:
            if is_nested:
                raise
            await call.unit.rollback(exc)
            if isinstance(exc, BaobabError) and not isinstance(exc, Internal):
                await call.services.audit_log.record_failure(call, values, exc)
            raise
        return result


async def _ask_tool(call: Call, values: dict[str, Any]) -> Preview:
    """Asks the tool of a call what the call would do now."""
    if call.tool.preview is None:
        return Preview()
    call.is_preview = True
    answer: Preview | str = await call.tool.preview(call, **values)
    preview = Preview(answer) if isinstance(answer, str) else answer
    warnings = [*preview.warnings, *(call.warnings or ())]
    return preview._replace(warnings=warnings, is_undoable=call.is_undoable)


def _validate_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the handler's arguments. Raises BadRequest, which names what is wrong with those that were sent.

    Null for what may be left out means that it was left out, unless its type gives null a meaning.
    """
    try:
        return tool.validate(arguments)
    except ValidationError as exc:
        error = exc
    nulls = find_nulls(arguments, error)
    while nulls:
        fewer_arguments = leave_out(arguments, nulls)
        try:
            return tool.validate(fewer_arguments)
        except ValidationError as exc:
            later_error = exc
        required_nulls = nulls & find_missing(fewer_arguments, later_error)
        if not required_nulls:
            error = later_error
            break
        nulls -= required_nulls
    raise invalid(error, tool.arguments, tool.input_schema) from error


def _has_stream(values: Mapping[str, Any]) -> bool:
    """Returns whether an argument arrives as a stream, and so can neither be kept nor compared."""
    return any(isinstance(value, Body) and value.text is None for value in values.values())


def _lock_owner(call: Call) -> str | None:
    """Returns the tenant whose writers wait for each other: the app of the call, else the caller's organisation.

    Strangers have none: what they may write is kept exact by constraints and by locks of its rows.
    """
    if call.app is not None:
        return call.app.id
    owner: str | None = getattr(call.caller, "app_id", None) or getattr(call.caller, "organisation_id", None)
    return owner


def _tenant(call: Call) -> str:
    """Returns the tenant of a call: the organisation, or the address of an anonymous caller."""
    if isinstance(call.caller, (Account, ScopedKey)):
        return call.caller.organisation_id
    if call.app is not None and not isinstance(call.caller, Anonymous):
        return call.app.organisation_id
    return f"{STRANGER}:{network(call.context.ip)}"


@functools.cache
def _shape(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))
