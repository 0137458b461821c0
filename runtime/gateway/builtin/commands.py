"""The commands that a prompt may contain for the built-in model: which tools to call in which order, and what to say.

A command is a line that begins with its name:

    /call NAME {"argument": 1}      call a tool; `/call` lines that follow each other are called at once
    /then NAME {"id": "$1.id"}      call a tool after the results of the calls above
    /repeat 3 NAME {}               call a tool three times, each time after the last result
    /say TEXT                       say this at the end, instead of the tools' results

The arguments are optional: a JSON object that begins on the line and may span several lines. A string `$1` in
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
    """A command is malformed, or refers to something that does not exist."""


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

    def next_calls(self, calls_made: int, *, parallel: bool) -> tuple[PlannedCall, ...]:
        """Returns the next calls after that many: the rest of the current step, or one call of it."""
        if calls_made >= len(self.calls):
            return ()
        step = self.calls[calls_made].step
        step_calls = tuple(call for call in self.calls[calls_made:] if call.step == step)
        return step_calls if parallel else step_calls[:1]


def parse_plan(text: str) -> Plan:
    """Parses the plan in a text, which may be empty. Raises PlanUnreadable."""
    calls: list[PlannedCall] = []
    say: list[str] = []
    prose: list[str] = []
    step, last_command, end = 0, "", 0
    while match := _COMMAND.search(text, end):
        prose.append(text[end : match.start()])
        command, at = match[1], match.end()
        if command == "say":
            end = _find_line_end(text, at)
            say.append(text[at:end].strip())
            continue
        times = 1
        if command == "repeat":
            times_match = _TIMES.match(text, at)
            if times_match is None:
                raise PlanUnreadable("`/repeat` needs how often, the name of a tool and its arguments")
            times, at = int(times_match[1]), times_match.end()
        name, arguments, end = _parse_call(text, at, command)
        if calls and not (command == "call" and last_command in {"call", "then"}):
            step += 1
        last_command = command
        if len(calls) + times > MOST_CALLS:
            raise PlanUnreadable(f"a plan may have {MOST_CALLS} calls")
        calls.extend(PlannedCall(name, arguments, step + number) for number in range(times))
        step += max(times - 1, 0)
    prose.append(text[end:])
    return Plan(tuple(calls), "\n".join(say) if say else None, "".join(prose).strip())


def _parse_call(text: str, at: int, command: str) -> tuple[str, dict[str, Any], int]:
    name_match = _NAME.match(text, at)
    if name_match is None:
        raise PlanUnreadable(f"`/{command}` needs the name of a tool")
    space = _SPACE.match(text, name_match.end())
    at = space.end() if space else name_match.end()
    arguments: Any = {}
    if text.startswith("{", at):
        try:
            arguments, at = json_text.read_at(text, at)
        except ValueError as fault:
            raise PlanUnreadable(f"the arguments of `/{command} {name_match[0]}` are not JSON: {fault}") from fault
    if not _REST.match(text, at):
        raise PlanUnreadable(f"`/{command} {name_match[0]}` may be followed by one JSON object and nothing else")
    return name_match[0], arguments, _find_line_end(text, at)


def _find_line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


class ArgumentFiller:
    """Replaces `$1` and `$input` in the arguments of the next calls, and charges the budget for it."""

    def __init__(self, results: Sequence[str], user_input: str, budget: Budget) -> None:
        self._results = results
        self._input = user_input
        self._budget = budget
        self._values: dict[int, Any] = {}
        self._parts: dict[str, tuple[Any, int]] = {}

    def fill_value(self, value: Any) -> Any:
        """Returns the value with its references replaced. Raises PlanUnreadable and OverBudget."""
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
        match = _REFERENCE.fullmatch(reference)
        assert match is not None
        number, path = int(match[1]), match[2].split(".")[1:]
        if not 1 <= number <= len(self._results):
            raise PlanUnreadable(f"`{reference}`: that call has no result yet")
        if number not in self._values:
            self._values[number] = _parse_result(self._results[number - 1])
        value = self._values[number]
        # Finding a part and measuring it costs as much work as the whole result.
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
    """Parses a result as JSON; returns the text if it is not JSON."""
    try:
        value, end = json_text.read_at(result.strip(), 0)
    except ValueError:
        return result
    return value if end == len(result.strip()) else result
