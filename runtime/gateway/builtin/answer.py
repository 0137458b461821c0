"""Writes the built-in chat model's answer: calls of tools, JSON, or a text that repeats the prompt."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from baobab.runtime.bounded_schema import BoundedSchema, SchemaUnusable
from baobab.runtime.gateway.builtin import commands, json_text, tokens
from baobab.runtime.gateway.builtin.chat_request import BadParameter, ChatRequest, Message, Tool
from baobab.runtime.gateway.builtin.commands import ArgumentFiller, Plan, PlanUnreadable
from baobab.runtime.gateway.builtin.schema_instance import NOTHING, write_instance
from baobab.runtime.work_budget import Budget

# Every text begins with this label, so that nobody takes the answer for that of a language model.
LABEL = "[baobab/echo, the built-in model]"
_LONGEST_QUOTE = 2000

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that the model requests; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EchoAnswer:
    text: str | None
    calls: tuple[RequestedCall, ...]
    finish: FinishReason

    @property
    def token_count(self) -> int:
        calls = sum(_count_call_tokens(call) for call in self.calls)
        return tokens.count_tokens(self.text or "") + calls


@dataclass(frozen=True, slots=True)
class _Turn:
    """The user's last message, and the calls since."""

    message: Message
    plan: Plan
    results: tuple[tuple[str, str], ...]  # name and result of each call, in order


def write_answer(request: ChatRequest, budget: Budget) -> EchoAnswer:
    """Writes the answer. Raises BadParameter for a schema that it cannot satisfy, and OverBudget."""
    try:
        turn = _read_turn(request.messages)
        calls = _request_calls(request, turn, budget)
    except PlanUnreadable as fault:
        return _truncate_answer(request, EchoAnswer(f"{LABEL} I cannot follow the prompt: {fault}.", (), "stop"))
    if calls:
        return _truncate_answer(request, EchoAnswer(None, calls, "tool_calls"))
    return _truncate_answer(request, EchoAnswer(_write_text(request, turn, budget), (), "stop"))


def _read_turn(messages: Sequence[Message]) -> _Turn:
    last_user_index = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    since = messages[last_user_index + 1 :]
    user_message = messages[last_user_index] if last_user_index >= 0 else Message("user", "")
    results = {message.answers: message.text for message in since if message.role == "tool"}
    results_made = tuple((call.name, results[call.id]) for message in since for call in message.calls)
    plan = commands.parse_plan(user_message.text)
    if not plan:
        # An agent may have its plan in its instructions.
        instructions = commands.parse_plan("\n".join(message.text for message in messages if message.role == "system"))
        plan = replace(instructions, prose=user_message.text) if instructions else plan
    return _Turn(user_message, plan, results_made)


def _request_calls(request: ChatRequest, turn: _Turn, budget: Budget) -> tuple[RequestedCall, ...]:
    tools_by_name = {tool.name: tool for tool in request.tools}
    planned_calls = turn.plan.next_calls(len(turn.results), parallel=request.parallel)
    if planned_calls and all(call.name in tools_by_name for call in planned_calls):
        filling = ArgumentFiller([result for _, result in turn.results], turn.message.text, budget)
        return tuple(
            RequestedCall(call.name, json_text.encode_json(filling.fill_value(call.arguments)))
            for call in planned_calls
        )
    if request.must_call:
        tool = request.tools[0]
        return (
            RequestedCall(
                tool.name, json_text.encode_json(_write_instance(tool.parameters or {}, turn, budget, "tools", tool))
            ),
        )
    if planned_calls and request.tools:
        missing = next(call.name for call in planned_calls if call.name not in tools_by_name)
        raise PlanUnreadable(f"there is no tool called `{missing}`; there are {', '.join(tools_by_name)}")
    return ()


def _write_text(request: ChatRequest, turn: _Turn, budget: Budget) -> str:
    if request.response_format == "json_schema":
        return json_text.encode_json(_write_instance(request.schema, turn, budget, "response_format"))
    if request.response_format == "json_object":
        objects = _find_objects(turn, budget)
        return json_text.encode_json(objects[0] if objects else {"model": "baobab/echo", "text": turn.message.text})
    if turn.plan.next_calls(len(turn.results), parallel=True):
        names = ", ".join(f"`{call.name}`" for call in turn.plan.next_calls(len(turn.results), parallel=True))
        return f"{LABEL} I was to call {names}, and may call no tool."
    if turn.plan.say is not None:
        return f"{LABEL} {turn.plan.say}"
    if turn.results:
        return "\n".join([LABEL, *(f"{name} answered: {_shorten_result(result)}" for name, result in turn.results)])
    reply = f"You said: {turn.message.text}" if turn.message.text else "You said nothing."
    kinds = Counter(turn.message.attachments)
    attachments = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds.items())
    return f"{LABEL} {reply}" + (f"\nYou sent {attachments}, which I cannot see." if attachments else "")


def _write_instance(schema: Any, turn: _Turn, budget: Budget, param: str, tool: Tool | None = None) -> Any:
    """Writes a value that satisfies the schema, from the first JSON object that does or that has some of its fields."""
    if tool is not None:
        schema = {"type": "object", **schema}
    objects = _find_objects(turn, budget)
    bounded_schema = BoundedSchema(schema, budget)
    try:
        matching = (value for value in objects if bounded_schema.is_valid(schema, value))
        properties = schema.get("properties", {}) if isinstance(schema.get("properties", {}), dict) else {}
        partial_matches = (value for value in objects if value.keys() & properties.keys())
        return write_instance(schema, next(matching, None) or next(partial_matches, NOTHING), budget)
    except SchemaUnusable as refused:
        of_tool = f" of `{tool.name}`" if tool else ""
        raise BadParameter(param, f"no answer can be written to the schema{of_tool}: {refused}") from refused


def _find_objects(turn: _Turn, budget: Budget) -> list[dict[str, Any]]:
    """Finds the JSON objects in the user's text, then in the tools' results."""
    texts = [turn.plan.say or "", turn.plan.prose, *(result for _, result in reversed(turn.results))]
    return json_text.find_objects(texts, budget)


def _shorten_result(result: str) -> str:
    return result if len(result) <= _LONGEST_QUOTE else f"{result[:_LONGEST_QUOTE]}\u2026"


def _truncate_answer(request: ChatRequest, whole: EchoAnswer) -> EchoAnswer:
    """Cuts the answer at stop sequences and at the limit of tokens, and makes it encodable as UTF-8."""
    if whole.text is not None:
        text = _replace_surrogates(whole.text)
        stop_positions = [at for stop in request.stop if (at := text.find(stop)) >= 0]
        text = text[: min(stop_positions)] if stop_positions else text
        shown_text = tokens.first_tokens(text, request.most_tokens)
        return EchoAnswer(shown_text, (), "length" if len(shown_text) < len(text) else "stop")
    tokens_left, calls = request.most_tokens, list[RequestedCall]()
    for call in whole.calls:
        encodable_call = replace(call, arguments=_replace_surrogates(call.arguments))
        if _count_call_tokens(encodable_call) > tokens_left:
            # As with any model, the JSON is incomplete where the tokens ran out.
            room = tokens_left - _count_call_tokens(replace(encodable_call, arguments=""))
            calls += (
                [replace(encodable_call, arguments=tokens.first_tokens(encodable_call.arguments, room))]
                if room >= 0
                else []
            )
            return EchoAnswer(None, tuple(calls), "length")
        tokens_left -= _count_call_tokens(encodable_call)
        calls.append(encodable_call)
    return EchoAnswer(None, tuple(calls), "tool_calls")


def _count_call_tokens(call: RequestedCall) -> int:
    return tokens.PER_TOOL_CALL + tokens.count_tokens(call.name) + tokens.count_tokens(call.arguments)


def _replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which a JSON string may contain but UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
