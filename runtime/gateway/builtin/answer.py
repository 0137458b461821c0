"""What the built-in model answers: calls of tools, JSON, or a text that repeats what it was told."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from baobab.runtime.bounded_schema import BoundedSchema, SchemaUnusable
from baobab.runtime.gateway.builtin import json_text, plan, tokens
from baobab.runtime.gateway.builtin.chat_request import BadParameter, ChatRequest, Message, Tool
from baobab.runtime.gateway.builtin.plan import Filling, Plan, PlanUnreadable
from baobab.runtime.gateway.builtin.schema_instance import NOTHING, write_instance
from baobab.runtime.work_budget import Budget

# Every text begins with it, so that nobody takes the answer for that of a language model.
LABEL = "[baobab/echo, the built-in model]"
_MOST_QUOTED = 2000

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Wish:
    """A call that the model asks for; arguments are JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    text: str | None
    wishes: tuple[Wish, ...]
    finish: FinishReason

    @property
    def tokens(self) -> int:
        calls = sum(_price(wish) for wish in self.wishes)
        return tokens.count(self.text or "") + calls


@dataclass(frozen=True, slots=True)
class _Turn:
    """The last message of the user, and what has happened since."""

    message: Message
    plan: Plan
    made: tuple[tuple[str, str], ...]  # name and result of each call, in order


def answer(request: ChatRequest, budget: Budget) -> Answer:
    """Raises BadParameter where the schema is one that it cannot satisfy, and OverBudget."""
    try:
        turn = _turn(request.messages)
        wishes = _wishes(request, turn, budget)
    except PlanUnreadable as fault:
        return _cut(request, Answer(f"{LABEL} I cannot follow the prompt: {fault}.", (), "stop"))
    if wishes:
        return _cut(request, Answer(None, wishes, "tool_calls"))
    return _cut(request, Answer(_text(request, turn, budget), (), "stop"))


def _turn(messages: Sequence[Message]) -> _Turn:
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    since = messages[last + 1 :]
    asked = messages[last] if last >= 0 else Message("user", "")
    results = {message.answers: message.text for message in since if message.role == "tool"}
    made = tuple((call.name, results[call.id]) for message in since for call in message.calls)
    followed = plan.read(asked.text)
    if not followed:
        # An agent of one purpose has its plan in its instructions.
        instructions = plan.read("\n".join(message.text for message in messages if message.role == "system"))
        followed = replace(instructions, prose=asked.text) if instructions else followed
    return _Turn(asked, followed, made)


def _wishes(request: ChatRequest, turn: _Turn, budget: Budget) -> tuple[Wish, ...]:
    known = {tool.name: tool for tool in request.tools}
    planned = turn.plan.next(len(turn.made), parallel=request.parallel)
    if planned and all(call.name in known for call in planned):
        filling = Filling([result for _, result in turn.made], turn.message.text, budget)
        return tuple(Wish(call.name, json_text.write(filling.fill(call.arguments))) for call in planned)
    if request.must_call:
        tool = request.tools[0]
        return (Wish(tool.name, json_text.write(_satisfying(tool.parameters or {}, turn, budget, "tools", tool))),)
    if planned and request.tools:
        missing = next(call.name for call in planned if call.name not in known)
        raise PlanUnreadable(f"there is no tool called `{missing}`; there are {', '.join(known)}")
    return ()


def _text(request: ChatRequest, turn: _Turn, budget: Budget) -> str:
    if request.response_format == "json_schema":
        return json_text.write(_satisfying(request.schema, turn, budget, "response_format"))
    if request.response_format == "json_object":
        offered = _offered(turn, budget)
        return json_text.write(offered[0] if offered else {"model": "baobab/echo", "text": turn.message.text})
    if turn.plan.next(len(turn.made), parallel=True):
        names = ", ".join(f"`{call.name}`" for call in turn.plan.next(len(turn.made), parallel=True))
        return f"{LABEL} I was to call {names}, and may call no tool."
    if turn.plan.say is not None:
        return f"{LABEL} {turn.plan.say}"
    if turn.made:
        return "\n".join([LABEL, *(f"{name} answered: {_quoted(result)}" for name, result in turn.made)])
    said = f"You said: {turn.message.text}" if turn.message.text else "You said nothing."
    kinds = Counter(turn.message.attachments)
    counted = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds.items())
    return f"{LABEL} {said}" + (f"\nYou sent {counted}, which I cannot see." if counted else "")


def _satisfying(schema: Any, turn: _Turn, budget: Budget, param: str, tool: Tool | None = None) -> Any:
    """A value of the schema, from the first JSON object told that has it, or else from one that has a part of it."""
    if tool is not None:
        schema = {"type": "object", **schema}
    offered = _offered(turn, budget)
    bounded = BoundedSchema(schema, budget)
    try:
        whole = (one for one in offered if bounded.permits(schema, one))
        named = schema.get("properties", {}) if isinstance(schema.get("properties", {}), dict) else {}
        partly = (one for one in offered if one.keys() & named.keys())
        return write_instance(schema, next(whole, None) or next(partly, NOTHING), budget)
    except SchemaUnusable as refused:
        where = f" of `{tool.name}`" if tool else ""
        raise BadParameter(param, f"no answer can be written to the schema{where}: {refused}") from refused


def _offered(turn: _Turn, budget: Budget) -> list[dict[str, Any]]:
    """JSON objects that the model was told: by the user first, then by the tools."""
    told = [turn.plan.say or "", turn.plan.prose, *(result for _, result in reversed(turn.made))]
    return json_text.objects(told, budget)


def _quoted(result: str) -> str:
    return result if len(result) <= _MOST_QUOTED else f"{result[:_MOST_QUOTED]}\u2026"


def _cut(request: ChatRequest, whole: Answer) -> Answer:
    """The answer as far as stop sequences and the most tokens let it come, in texts that can be sent."""
    if whole.text is not None:
        text = _sendable(whole.text)
        ends = [at for stop in request.stop if (at := text.find(stop)) >= 0]
        text = text[: min(ends)] if ends else text
        shown = tokens.first(text, request.most_tokens)
        return Answer(shown, (), "length" if len(shown) < len(text) else "stop")
    left, kept = request.most_tokens, list[Wish]()
    for wish in whole.wishes:
        sent = replace(wish, arguments=_sendable(wish.arguments))
        if _price(sent) > left:
            # As with any model: what it had no tokens for is missing, and the JSON is not whole.
            room = left - _price(replace(sent, arguments=""))
            kept += [replace(sent, arguments=tokens.first(sent.arguments, room))] if room >= 0 else []
            return Answer(None, tuple(kept), "length")
        left -= _price(sent)
        kept.append(sent)
    return Answer(None, tuple(kept), "tool_calls")


def _price(wish: Wish) -> int:
    return tokens.PER_TOOL_CALL + tokens.count(wish.name) + tokens.count(wish.arguments)


def _sendable(text: str) -> str:
    """Half of a surrogate pair can stand in a JSON string and in no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
