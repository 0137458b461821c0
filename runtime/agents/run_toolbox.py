"""The run toolbox: calls tools and models for a run, with the rights of whoever started it."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.agents.charges import OUT_OF_BUDGET, RAISE_BUDGET, RunCharges
from baobab.runtime.agents.child_runs import ChildRuns, derive_child_id
from baobab.runtime.agents.event_log import EventLog
from baobab.runtime.agents.failures import ApprovalPending, CallDenied, RateLimited, RunFailed, RunTimedOut, ToolFailed
from baobab.runtime.agents.live_text import LiveText, LiveTexts
from baobab.runtime.agents.model_answers import ModelAnswer, parse_model_answer
from baobab.runtime.agents.model_calls import ModelCallRecord
from baobab.runtime.agents.offers import BOUND, DIGEST, SERVER, ToolOffers, function_names
from baobab.runtime.agents.reading import describe_reading
from baobab.runtime.agents.run_session import CallResult, Message, RunResult
from baobab.runtime.agents.spec.announcements import Announcement, CallingNode
from baobab.runtime.agents.spec.app_rights import AppRightWithdrawn, digest_node, require_app_right
from baobab.runtime.agents.spec.bounds import MAX_HELD_DEPTH, is_too_deep
from baobab.runtime.agents.spec.spec import AgentNode, GraphSpec, LlmNode, NamedApprovers, ToolRef
from baobab.runtime.agents.spec.validation import ToolOffer, find_node_right_issues
from baobab.runtime.agents.spec.wiring import is_output
from baobab.runtime.jobs.job_slots import network_wait
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import ActingApp, Anonymous, AppKey, Caller, EndUser
from baobab.tools.core.auth.deciders import ADMIN, MEMBER, OWNER_OF_KEY, STARTER, Approvers, starter_of, starters_of
from baobab.tools.core.call import Call, Tool, ToolRunner
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import ApprovalRejected, ApprovalRequired, BaobabError, Unavailable
from baobab.tools.core.guard.app_rights import AppRight
from baobab.tools.core.guard.approvals import ApprovalExpired, TooManyPending, caller_requires_approval
from baobab.tools.core.guard.read_text import shorten_texts
from baobab.tools.core.guard.steps import Step
from baobab.tools.core.guard.wording import redact_arguments
from baobab.tools.core.limits.credits import BudgetExhausted
from baobab.tools.core.limits.money import usd

# A call that must wait longer than this for a rate limit pauses its run, for at least as long.
_LONGEST_WAIT_SECONDS = 10
_TOO_MANY_REQUESTS = 429
_SERVER_FAULT = 500
_WITHHELD = (
    "Some tools that this task may need are not available to whoever started this run. Say so where they matter."
)
_LONGEST_RETRY_SECONDS = 600
_LONGEST_REASON = 40
# A decision makes room, and continues the run before that.
_TOO_MANY_PENDING_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RunToolbox:
    """The tools and models of one run.

    caller: who started the run, with the rights that they have now; run: its row; offers: the tools that its app has
    for agents; charges: counts what its models cost.
    """

    registry: ToolRunner
    event_log: EventLog
    run: Any
    spec: GraphSpec
    caller: Caller
    base_url: str
    offers: ToolOffers
    child_runs: ChildRuns
    charges: RunCharges
    live_texts: LiveTexts

    async def call_tool(
        self,
        ref: ToolRef,
        arguments: Mapping[str, Any],
        call_id: str,
        *,
        tainted: bool,
        approvers: NamedApprovers | None = None,
        calling: CallingNode | None = None,
    ) -> CallResult:
        right = self._borrow_right(calling) if calling is not None and calling.lends_right else None
        tool, caller = await self._get_callable_tool(ref, call_id, right), self.caller
        if right is not None:
            caller = ActingApp(self.run.app_id, self.run.agent_id)
        needs_approval, is_held = (
            right is not None or self._needs_approval(ref, tool, tainted=tainted),
            caller_requires_approval(self.caller, tool.name, tool.effect),
        )
        deciders = self._choose_approvers(ref, approvers, is_held=is_held, is_lent=right is not None)
        reading = None
        if needs_approval or is_held:
            # What the steps before have read is in their events.
            await self.event_log.flush()
            redacted_arguments = self.redact_arguments(ref, arguments)
            reading = await describe_reading(
                self.event_log.database, self.run, tool, redacted_arguments, self._find_user_name
            )
        step = Step(
            self.run.id,
            call_id,
            self.run.organisation_id,
            self.run.account_id,
            timedelta(seconds=self.spec.limits.human_timeout_seconds),
            requires_approval=needs_approval,
            tainted=tainted,
            approvers=deciders.of,
            persons=deciders.persons,
            starter=starter_of(self.run),
            trigger=(self.run.caller.get("trigger") or {}).get("name", ""),
            agent=self.run.agent,
            app_id=self.run.app_id,
            voucher=proposers.find_voucher(self.run.caller),
            pins=frozenset([DIGEST, SERVER]) if ref.source == "mcp" else frozenset(),
            app_right=right,
            node="" if calling is None else calling.node_id,
            announces=None if calling is None else self._describe_announced(calling.announces),
            ask=None if calling is None or calling.ask is None else self._name_ask(ref, calling.ask),
            reading=reading,
        )
        context = RequestContext(
            "agent", self._request_id(call_id), ip=self.run.caller_ip or "local", base_url=self.base_url
        )
        context.step, context.spender = step, self.charges.spender
        try:
            bound_arguments = self.offers.build_arguments(ref, self.run.app_id, arguments)
            if needs_approval or is_held or tool.effect != "read" or ref.source != "builtin":
                # The call has an effect or takes long: all steps before it are written first.
                await self.event_log.flush()
            result, finished_call = await self._run_with_waits(tool, bound_arguments, caller, context)
            self.event_log.add_usage(cost=finished_call.cost or 0)
            if finished_call.cost is None and tool.effect == "external":
                # What it costs, if anything, is in the ledger.
                self.charges.may_be_incomplete = True
        except ApprovalRequired as exc:
            expires_at = exc.details["expires_at"] if exc.details["status"] == "pending" else None
            details = {
                "args": dict(self.redact_arguments(ref, arguments)),
                "tainted": tainted,
                "until": expires_at,
                "approvers": deciders.as_json,
            }
            raise ApprovalPending(exc.details["approval_id"], details) from exc
        except ApprovalRejected as exc:
            await self._emit_decision(call_id)
            raise CallDenied(exc.message) from exc
        except ApprovalExpired as exc:
            raise RunTimedOut("Nobody decided in time.") from exc
        except Unavailable:
            # This passes soon and is not the run's fault: the run is tried again.
            raise
        except BaobabError as exc:
            self.charges.may_be_incomplete = True
            edited_arguments = await self._emit_decision(call_id) if needs_approval or is_held else None
            error = _error_payload(exc)
            if (server := self.offers.get_server_name(ref)) is not None:
                error["details"] = {**error["details"], "tool_server": server}
            raise ToolFailed(error, edited_arguments) from exc
        edited_arguments = await self._emit_decision(call_id) if needs_approval or is_held else None
        try:
            return CallResult(
                _decode_result(tool.encode(result)),
                edited_arguments,
                finished_call.warnings or (),
                # What a tool server answers is always text of others.
                ref.source != "builtin" or finished_call.has_read_outside,
                shorten_texts(finished_call.texts or []),
            )
        except ToolFailed as failed:
            failed.arguments = edited_arguments
            raise

    async def _find_user_name(self, user_id: str) -> str | None:
        """Returns what a user of the app is called; None for one who is gone."""
        arguments = {"app_id": self.run.app_id, "user_id": user_id}
        context = RequestContext("agent", f"{self.run.id}:name", base_url=self.base_url)
        itself = AppKey(self.run.app_id, self.run.agent_id)
        try:
            result, _ = await self.registry.run(self.registry.find("users_get"), arguments, itself, context)
        except BaobabError:
            return None
        user = result["user"]
        name: str | None = user["display_name"] or user["email"]
        return name

    async def _emit_decision(self, call_id: str) -> dict[str, Any] | None:
        """Emits a person's decision about a call. Returns the arguments that the person gave in place of its own, if
        any.
        """
        decision = await self.registry.services.approvals.read_decision(self.run.id, self._request_id(call_id))
        if decision is None:
            return None
        payload = {"call_id": call_id, **decision.event}
        self.event_log.emit_event("run_resumed", payload, f"resumed {decision.approval_id}", above=True)
        return decision.arguments

    def _name_ask(self, ref: ToolRef, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Returns an `ask` with what is needed to find the arguments that it names."""
        names = self.offers.list_own_names(ref) if ref.source == "builtin" else {}
        return {**ask, "names": names, "remote": ref.source == "mcp"}

    def _describe_announced(self, announced: Announcement | None) -> dict[str, Any] | None:
        """Describes the write that follows a question, as the question's approval keeps it."""
        if announced is None:
            return None
        calling, ref = announced.calling, announced.calling.node.tool_ref
        if isinstance(self.offers.get_offer(ref), str):
            return None
        tool, right = self.offers.get_calling_tool(ref), self._borrow_right(calling) if calling.lends_right else None
        is_held = caller_requires_approval(self.caller, tool.name, tool.effect)
        deciders = self._choose_approvers(ref, calling.node.approvers, is_held=is_held, is_lent=right is not None)
        return {
            "node": calling.node_id,
            "call_id": announced.call_id,
            "tool": tool.name,
            "template": calling.node.args_template,
            "names": self.offers.list_own_names(ref),
            "bound": self.offers.build_arguments(ref, self.run.app_id, {}),
            "values": announced.values,
            "answer_key": announced.answer_key,
            "approvers": deciders.of,
            "persons": deciders.persons,
            "app_right": None if right is None else right.as_column,
        }

    def _borrow_right(self, calling: CallingNode) -> AppRight:
        """Returns the app's right for the call of a node, which nobody has without an approval of that call."""
        return AppRight(
            self.run.agent_id,
            calling.node_id,
            digest_node(calling.node),
            self.offers.list_edit_paths(calling.node),
            tuple(starters_of(self.run)),
            self.caller,
        )

    async def _require_right(self, ref: ToolRef, right: AppRight) -> None:
        """Raises ToolFailed unless the app still lends its right to the call of the node that calls `ref`."""
        node: Any = self.spec.nodes[right.node]
        if issue := next(iter(find_node_right_issues(node, self.offers)), None):
            message = f"{right.node} may not use the app's right: {'.'.join(map(str, issue.path))} {issue.message}"
            raise ToolFailed({"code": AppRightWithdrawn.code, "message": message})
        if isinstance(self.caller, (EndUser, Anonymous)) and ref.exposed_to_override == "developer_only":
            raise ToolFailed({"code": "TOOL_NOT_ALLOWED", "message": f"Users may not use {ref.name} here."})
        try:
            app = await self.registry.services.directory.app(self.run.app_id)
            await require_app_right(self.event_log.database.execute, app, right.agent_id, right.node, right.digest)
        except BaobabError as exc:
            raise ToolFailed(_error_payload(exc)) from exc

    def _choose_approvers(
        self, ref: ToolRef, named_approvers: NamedApprovers | None, *, is_held: bool, is_lent: bool
    ) -> Approvers:
        """Chooses who may approve a call: those that the node names, else the agent, else whoever started the run.

        Calls of tool servers use the app's own credentials, so admins approve them by default. A call that waits
        because its key requires approval is approved only by the people whom the key belongs to; by admins if it uses
        the app's right.
        """
        approvers_json = self.run.approvers if named_approvers is None else named_approvers
        default = ADMIN if ref.source != "builtin" else STARTER
        approvers = Approvers(default) if approvers_json is None else Approvers.parse(approvers_json)
        if is_held and approvers.of not in (MEMBER, ADMIN):
            if is_lent:
                return Approvers(ADMIN, approvers.persons)
            return Approvers(OWNER_OF_KEY, approvers.persons)
        return approvers

    def redact_arguments(self, ref: ToolRef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the arguments as events show them: without secrets."""
        registration = self.registry.find_for_graphs(ref.name) if ref.source == "builtin" else None
        return arguments if registration is None else redact_arguments(registration[0], arguments)

    def get_server_name(self, ref: ToolRef, call_id: str) -> str | None:
        return self.offers.get_server_name(ref)

    async def run_agent(
        self, node: AgentNode, input_values: Mapping[str, Any], call_id: str, *, tainted: bool
    ) -> RunResult:
        return await self.child_runs.get_result(node, input_values, call_id, tainted=tainted)

    def get_child_id(self, call_id: str) -> str:
        return derive_child_id(self.run.id, call_id)

    async def ask_model(self, node_id: str, node: LlmNode, messages: Sequence[Message], step: int) -> ModelAnswer:
        messages = self._note_withheld(node_id, node, messages)
        request: dict[str, Any] = {"messages": messages, "model": node.model or self.run.model}
        optional = {"temperature": node.temperature, "max_tokens": node.max_tokens}
        request |= {name: value for name, value in optional.items() if value is not None}
        names = function_names(self.spec) if node.tools else {}
        if tools := [self.offers.describe_tool(ref, names[ref.key]) for ref in node.tools if self._is_admitted(ref)]:
            request["tools"] = tools
        if node.output_schema is not None:
            shape = {"name": node.output_key, "schema": node.output_schema}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        context = RequestContext("agent", f"{self.run.id}:{step}", base_url=self.base_url, spender=self.charges.spender)
        paying = AppKey(self.run.app_id, getattr(self.caller, "key_id", None) or self.run.agent_id)
        began_at = time.monotonic()
        try:
            text = LiveText(node_id, step, is_output=is_output(self.spec, node))
            async with self.live_texts.open_text(self.run, text, self.event_log.database) as context.follow_text:
                request[BOUND] = self.run.app_id
                answer, call = await self._ask_with_retries(node_id, node, step, request, paying, context)
        except Unavailable:
            raise
        except BaobabError as exc:
            self.charges.may_be_incomplete = True
            took = round((time.monotonic() - began_at) * 1000)
            failed_call = ModelCallRecord(step, node_id, request["model"], messages, None, exc.message, 0, 0, 0, took)
            self.event_log.add_model_call(failed_call)
            cause = _error_payload(exc)
            if isinstance(exc, BudgetExhausted) and exc.budget.subject == "agent":
                raise RunFailed("daily_budget_usd", OUT_OF_BUDGET, cause=cause | {"remediation": RAISE_BUDGET}) from exc
            raise RunFailed("model_failed", exc.message, quotes=True, cause=cause) from exc
        model_answer, took = parse_model_answer(answer), round((time.monotonic() - began_at) * 1000)
        finish_reason = "refusal" if model_answer.refusal else model_answer.finish_reason[:_LONGEST_REASON] or None
        payload = self._record_usage(answer, call, step, request["model"], took, finish_reason)
        record = ModelCallRecord(
            step,
            node_id,
            payload["model"],
            messages,
            model_answer.message,
            None,
            payload["input_tokens"],
            payload["output_tokens"],
            call.cost or 0,
            took,
            finish_reason,
        )
        self.event_log.add_model_call(record)
        return model_answer

    async def _ask_with_retries(
        self,
        node_id: str,
        node: LlmNode,
        step: int,
        request: Mapping[str, Any],
        caller: Caller,
        context: RequestContext,
    ) -> tuple[Any, Call]:
        """Asks a model again where its provider fails, as often as the node says. Each attempt after the first is an
        event, by which later attempts at the step count it.

        Raises RateLimited where a wait is long, and the provider's error after the last attempt.
        """
        chat_tool, attempt = self.registry.find("ai_chat"), 1
        while self.event_log.has_emitted(f"retry {step}.{attempt}"):
            attempt += 1
        while True:
            try:
                return await self._run_with_waits(chat_tool, request, caller, context)
            except Unavailable:
                raise
            except BaobabError as exc:
                if exc.status < _SERVER_FAULT or attempt >= node.retry.attempts:
                    raise
                wait = min(node.retry.wait_seconds * 2 ** (attempt - 1), _LONGEST_RETRY_SECONDS)
                if wait >= self._count_seconds_left():
                    raise
                self.charges.may_be_incomplete = True
                error = {"code": exc.code, "message": exc.message}
                payload = {"node_id": node_id, "step": step, "attempt": attempt, "wait_seconds": wait, "error": error}
                self.event_log.emit_event("model_retry", payload, f"retry {step}.{attempt}")
                attempt += 1
                if wait > _LONGEST_WAIT_SECONDS:
                    raise RateLimited(wait) from exc
                await self._wait(wait)

    async def _run_with_waits(
        self, tool: Tool, arguments: Mapping[str, Any], caller: Caller, context: RequestContext
    ) -> tuple[Any, Call]:
        """Runs a tool; a rate-limited call waits and is tried again, within the run's timeout.

        Raises RateLimited where the wait is longer than `_LONGEST_WAIT_SECONDS`, and the tool's error where the
        timeout would pass.
        """
        waited_seconds = 0
        while True:
            try:
                return await self.registry.run(tool, arguments, caller, context)
            except BaobabError as exc:
                wait = _find_wait(exc)
                if wait is None:
                    raise
                must_pause = waited_seconds + wait > _LONGEST_WAIT_SECONDS
                if must_pause:
                    wait = max(wait, _LONGEST_WAIT_SECONDS)
                if wait >= self._count_seconds_left():
                    raise
                if must_pause:
                    raise RateLimited(wait) from exc
            await self._wait(wait)
            waited_seconds += wait

    async def _wait(self, seconds: int) -> None:
        await self.event_log.flush()
        async with network_wait():
            await asyncio.sleep(seconds)

    def _count_seconds_left(self) -> float:
        """Returns the seconds after which the run times out."""
        active_seconds: float = self.run.active_seconds + self.event_log.active_seconds
        return self.spec.limits.timeout_seconds - active_seconds

    async def _get_callable_tool(self, ref: ToolRef, call_id: str, right: AppRight | None) -> Tool:
        """Returns the tool that makes the call. Raises ToolFailed if it is not allowed, unless the call has ended
        before. right: the app's, if the call uses it in place of the caller's.
        """
        try:
            if right is None:
                return self._get_tool(ref)
            await self._require_right(ref, right)
            return self.offers.get_calling_tool(ref)
        except ToolFailed:
            if not await self.registry.services.approvals.has_ended(self.run.id, self._request_id(call_id)):
                raise
            return self.offers.get_calling_tool(ref)

    def _request_id(self, call_id: str) -> str:
        return f"{self.run.id}:{call_id}"[:80]

    def _get_tool(self, ref: ToolRef) -> Tool:
        if ref.source == "mcp":
            try:
                self.offers.get_remote_tool(ref)
            except BaobabError as exc:
                raise ToolFailed(_error_payload(exc)) from exc
        elif self._find_offer(ref) is None:
            raise ToolFailed({"code": "UNKNOWN_TOOL", "message": f"There is no tool {ref.name} any more."})
        if not self._is_admitted(ref):
            raise ToolFailed(
                {"code": "TOOL_NOT_ALLOWED", "message": f"Whoever started the run may not use {ref.name}."}
            )
        return self.offers.get_calling_tool(ref)

    def _find_offer(self, ref: ToolRef) -> ToolOffer | None:
        return self.offers.find_offer(self.spec, ref)

    def _is_admitted(self, ref: ToolRef) -> bool:
        return self.offers.is_admitted(self.spec, ref, self.caller)

    def _note_withheld(self, node_id: str, node: LlmNode, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages for a model. It is told, as an event tells, if whoever started the run may not use some
        of its node's tools: without their names, which are the app's own.
        """
        names = [ref.name for ref in node.tools if not self._is_admitted(ref)]
        if not names:
            return list(messages)
        self.event_log.emit_event("tools_withheld", {"node_id": node_id, "tools": names}, f"withheld {node_id}"[:100])
        note = {"role": "system", "content": _WITHHELD}
        start = 1 if messages[0]["role"] == "system" else 0
        if start:
            note = {**messages[0], "content": f"{messages[0]['content']}\n\n{_WITHHELD}"}
        return [note, *messages[start:]]

    def _needs_approval(self, ref: ToolRef, tool: Tool, *, tainted: bool) -> bool:
        offer = self._find_offer(ref)
        if offer is None or offer.mode == "read_write":
            return True
        return tainted and self.run.taint_checks and tool.effect != "read"

    def _record_usage(
        self,
        answer: Mapping[str, Any],
        call: Call,
        step: int,
        requested_model: str | None,
        milliseconds: int,
        finish_reason: str | None,
    ) -> dict[str, Any]:
        """Counts what a model has used, and returns the usage for the event."""
        usage = answer.get("usage") or {}
        prompt, completion = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        self.event_log.add_usage(cost=call.cost or 0, prompt_tokens=prompt, completion_tokens=completion)
        payload: dict[str, Any] = {
            "input_tokens": prompt,
            "output_tokens": completion,
            # As requested, with the provider's name; where the app's default was used, only the answer names it.
            "model": requested_model or answer.get("model"),
            "cost_usd": usd(call.cost or 0),
            "duration_ms": milliseconds,
            "step": step,
            "finish_reason": finish_reason,
        }
        self.event_log.emit_event("llm_token_usage", payload, f"usage {step}")
        return payload


def _find_wait(error: BaobabError) -> int | None:
    """Returns the seconds to wait after a rate limit or too many pending approvals; None for any other error."""
    if isinstance(error, TooManyPending):
        return _TOO_MANY_PENDING_SECONDS
    if error.status != _TOO_MANY_REQUESTS or error.retry_after is None:
        return None
    return max(math.ceil(error.retry_after), 1)


def _decode_result(encoded_result: bytes) -> Any:
    """Decodes a result. Raises ToolFailed if it is nested too deeply for a checkpoint, which a stranger may cause."""
    try:
        result = from_json(encoded_result)
    except ValueError:
        # The parser refuses a depth of more than 200.
        deep = True
    else:
        deep = is_too_deep(result)
    if deep:
        message = f"The result is nested more than {MAX_HELD_DEPTH} deep."
        raise ToolFailed({"code": "RESULT_TOO_DEEP", "message": message})
    return result


def _error_payload(error: BaobabError) -> dict[str, Any]:
    payload = {"code": error.code, "message": error.message, "remediation": error.remedy, "details": error.details}
    plain: dict[str, Any] = from_json(to_json(payload))
    return plain
