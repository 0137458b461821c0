"""The commands that a prompt may hold for the built-in model: which tools to call, in which order, and what to say.

A command is a line that begins with its name:

    /call NAME {"argument": 1}      call a tool; `/call` lines that follow each other are called at once
    /then NAME {"id": "$1.id"}      call it when the results of what stands above are there
    /repeat 3 NAME {}               call it three times, each time when the last result is there
    /say TEXT                       in the end say this, and not what the tools answered

Arguments are nothing, or a JSON object that begins on the line and may go over several. A string `$1` in
them is the result of the first call, `$1.items.0` a part of it, and `$input` the last message of the user.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baobab.runtime.gateway.builtin import json_text
from baobab.runtime.work_budget import Budget

MOST_CALLS = 1000

_COMMAND = re.compile(r"^/(call|then|repeat|say)(?=\s|$)[ \t]*", re.MULTILINE)
_TIMES = re.compile(r"(\d{1,4})[ \t]+")
_NAME = re.compile(r"[^\s{]+")
_SPACE = re.compile(r"[ \t]*")
_REST = re.compile(r"[ \t\r]*$", re.MULTILINE)
_REFERENCE = re.compile(r"\$(\d{1,4})((?:\.[^.\s]+)*)")


class PlanUnreadable(ValueError):
    """A command is not written as it should be, or refers to what is not there."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    name: str
    arguments: dict[str, Any]
    step: int  # calls of one step are made at once


@dataclass(frozen=True, slots=True)
class Plan:
    calls: tuple[PlannedCall, ...]
    say: str | None
    prose: str  # the text without its commands

    def __bool__(self) -> bool:
        return bool(self.calls) or self.say is not None

    def next_calls(self, made: int, *, parallel: bool) -> tuple[PlannedCall, ...]:
        """What to call when that many calls have been made: the rest of the step, or one call of it."""
        if made >= len(self.calls):
            return ()
        step = self.calls[made].step
        rest = tuple(call for call in self.calls[made:] if call.step == step)
        return rest if parallel else rest[:1]


def parse_plan(text: str) -> Plan:
    """The plan that a text holds, which may be empty. Raises PlanUnreadable."""
    calls: list[PlannedCall] = []
    say: list[str] = []
    prose: list[str] = []
    step, last, end = 0, "", 0
    while found := _COMMAND.search(text, end):
        prose.append(text[end : found.start()])
        command, at = found[1], found.end()
        if command == "say":
            end = _find_line_end(text, at)
            say.append(text[at:end].strip())
            continue
        times = 1
        if command == "repeat":
            counted = _TIMES.match(text, at)
            if counted is None:
                raise PlanUnreadable("`/repeat` needs how often, the name of a tool and its arguments")
            times, at = int(counted[1]), counted.end()
        name, arguments, end = _parse_call(text, at, command)
        if calls and not (command == "call" and last in {"call", "then"}):
            step += 1
        last = command
        if len(calls) + times > MOST_CALLS:
            raise PlanUnreadable(f"a plan may have {MOST_CALLS} calls")
        calls.extend(PlannedCall(name, arguments, step + number) for number in range(times))
        step += max(times - 1, 0)
    prose.append(text[end:])
    return Plan(tuple(calls), "\n".join(say) if say else None, "".join(prose).strip())


def _parse_call(text: str, at: int, command: str) -> tuple[str, dict[str, Any], int]:
    named = _NAME.match(text, at)
    if named is None:
        raise PlanUnreadable(f"`/{command}` needs the name of a tool")
    space = _SPACE.match(text, named.end())
    at = space.end() if space else named.end()
    arguments: Any = {}
    if text.startswith("{", at):
        try:
            arguments, at = json_text.read_at(text, at)
        except ValueError as fault:
            raise PlanUnreadable(f"the arguments of `/{command} {named[0]}` are not JSON: {fault}") from fault
    if not _REST.match(text, at):
        raise PlanUnreadable(f"`/{command} {named[0]}` may be followed by one JSON object and nothing else")
    return named[0], arguments, _find_line_end(text, at)


def _find_line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


class ArgumentFiller:
    """What `$1` and `$input` stand for in the arguments of the next calls. All that is filled in is paid for."""

    def __init__(self, results: Sequence[str], user_input: str, budget: Budget) -> None:
        self._results = results
        self._input = user_input
        self._budget = budget
        self._values: dict[int, Any] = {}
        self._parts: dict[str, tuple[Any, int]] = {}

    def fill_value(self, value: Any) -> Any:
        """The value with what it refers to in place. Raises PlanUnreadable and OverBudget."""
        self._budget.spend()
        if isinstance(value, dict):
            return {key: self.fill_value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill_value(item) for item in value]
        if value == "$input":
            self._budget.spend(1 + len(self._input) // 1024, len(self._input))
            return self._input
        if not isinstance(value, str) or not _REFERENCE.fullmatch(value):
            return value
        if value not in self._parts:
            part = self._resolve_part(value)
            self._parts[value] = part, len(json_text.encode_json(part))
        part, size = self._parts[value]
        self._budget.spend(1 + size // 1024, size)
        return part

    def _resolve_part(self, reference: str) -> Any:
        found = _REFERENCE.fullmatch(reference)
        assert found is not None
        number, path = int(found[1]), found[2].split(".")[1:]
        if not 1 <= number <= len(self._results):
            raise PlanUnreadable(f"`{reference}`: that call has no result yet")
        if number not in self._values:
            self._values[number] = _parse_result(self._results[number - 1])
        value = self._values[number]
        # To find a part, and to write it once for its size, is work of the size of the whole result.
        self._budget.spend(len(path) + len(self._results[number - 1]) // 256)
        for segment in path:
            if isinstance(value, dict) and segment in value:
                value = value[segment]
            elif (
                isinstance(value, list)
                and segment.isascii()
                and segment.isdigit()
                and len(segment) < 8
                and int(segment) < len(value)
            ):
                value = value[int(segment)]
            else:
                raise PlanUnreadable(f"`{reference}`: the result has no such part")
        return value


def _parse_result(result: str) -> Any:
    """A result as the JSON that it is, or else as text."""
    try:
        value, end = json_text.read_at(result.strip(), 0)
    except ValueError:
        return result
    return value if end == len(result.strip()) else result
