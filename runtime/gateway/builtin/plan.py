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

    def next(self, made: int, *, parallel: bool) -> tuple[PlannedCall, ...]:
        """What to call when that many calls have been made: the rest of the step, or one call of it."""
        if made >= len(self.calls):
            return ()
        step = self.calls[made].step
        rest = tuple(call for call in self.calls[made:] if call.step == step)
        return rest if parallel else rest[:1]


def read(text: str) -> Plan:
    """The plan that a text holds, which may be empty. Raises PlanUnreadable."""
    calls: list[PlannedCall] = []
    say: list[str] = []
    prose: list[str] = []
    step, last, end = 0, "", 0
    while found := _COMMAND.search(text, end):
        prose.append(text[end : found.start()])
        command, at = found[1], found.end()
        if command == "say":
            end = _line_end(text, at)
            say.append(text[at:end].strip())
            continue
        times = 1
        if command == "repeat":
            counted = _TIMES.match(text, at)
            if counted is None:
                raise PlanUnreadable("`/repeat` needs how often, the name of a tool and its arguments")
            times, at = int(counted[1]), counted.end()
        name, arguments, end = _call(text, at, command)
        if calls and not (command == "call" and last in {"call", "then"}):
            step += 1
        last = command
        if len(calls) + times > MOST_CALLS:
            raise PlanUnreadable(f"a plan may have {MOST_CALLS} calls")
        calls.extend(PlannedCall(name, arguments, step + number) for number in range(times))
        step += max(times - 1, 0)
    prose.append(text[end:])
    return Plan(tuple(calls), "\n".join(say) if say else None, "".join(prose).strip())


def filled(arguments: dict[str, Any], results: Sequence[str], user_input: str) -> dict[str, Any]:
    """The arguments with what they refer to in place. Raises PlanUnreadable."""
    return {key: _fill(value, results, user_input) for key, value in arguments.items()}


def _call(text: str, at: int, command: str) -> tuple[str, dict[str, Any], int]:
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
    return named[0], arguments, _line_end(text, at)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _fill(value: Any, results: Sequence[str], user_input: str) -> Any:
    if isinstance(value, dict):
        return filled(value, results, user_input)
    if isinstance(value, list):
        return [_fill(item, results, user_input) for item in value]
    if value == "$input":
        return user_input
    reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if reference is None:
        return value
    number, path = int(reference[1]), reference[2].split(".")[1:]
    if not 1 <= number <= len(results):
        raise PlanUnreadable(f"`{value}`: that call has no result yet")
    found = _value(results[number - 1])
    for segment in path:
        if isinstance(found, dict) and segment in found:
            found = found[segment]
        elif isinstance(found, list) and segment.isascii() and segment.isdigit() and int(segment) < len(found):
            found = found[int(segment)]
        else:
            raise PlanUnreadable(f"`{value}`: the result has no such part")
    return found


def _value(result: str) -> Any:
    """A result as the JSON that it is, or else as text."""
    try:
        value, end = json_text.read_at(result.strip(), 0)
    except ValueError:
        return result
    return value if end == len(result.strip()) else result
