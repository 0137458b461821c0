"""The requests to a run's models and their answers, kept for the people who run the app."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from baobab.storage.sql.statements import Statements

MOST_CHARACTERS = 16_000
"""The most characters that are kept of a prompt and of an answer."""
MOST_OF_MESSAGE = 4_000
MOST_STEPS = 200
"""The number of a run's newest steps whose model calls are kept."""
_NOTES = 40
_SAVE = (
    "INSERT INTO agent_model_calls (app_id, run_id, step, node_id, model, prompt, left_out, answer, error,"
    " finish_reason, input_tokens, output_tokens, cost, milliseconds, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (app_id, run_id, step) DO NOTHING"
)
_FORGET = "DELETE FROM agent_model_calls WHERE app_id = ? AND run_id = ? AND step <= ?"


@dataclass(frozen=True, slots=True)
class ModelCallRecord:
    """One call to a model. answer: None if it failed, with the error. cost is in nano-dollars."""

    step: int
    node_id: str
    model: str | None
    prompt: Sequence[Mapping[str, Any]]
    answer: Mapping[str, Any] | None
    error: str | None
    input_tokens: int
    output_tokens: int
    cost: int
    milliseconds: int
    finish_reason: str | None = None

    def save(self, statements: Statements, app_id: str, run_id: str, now: datetime) -> None:
        """Stores the call, and deletes those of much earlier steps. A step that is repeated after a crash has one
        record.
        """
        prompt, left_out = bound_prompt(self.prompt)
        answer = None if self.answer is None else to_json(bound_message(self.answer, MOST_CHARACTERS)).decode()
        usage = (self.input_tokens, self.output_tokens, self.cost, self.milliseconds)
        about = (app_id, run_id, self.step, self.node_id[:64], self.model and self.model[:200])
        content = (to_json(prompt).decode(), left_out, answer, self.error and self.error[:2000], self.finish_reason)
        statements.rows(_SAVE, *about, *content, *usage, now)
        if self.step > MOST_STEPS:
            statements.rows(_FORGET, app_id, run_id, self.step - MOST_STEPS)


def bound_prompt(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Returns the first message and the newest ones that fit, each cut to a limit, and the number of messages left out
    between.
    """
    if not messages:
        return [], 0
    first = bound_message(messages[0], MOST_OF_MESSAGE)
    newest: list[dict[str, Any]] = []
    room = MOST_CHARACTERS - _measure(first)
    for message in reversed(messages[1:]):
        bounded_message = bound_message(message, MOST_OF_MESSAGE)
        room -= _measure(bounded_message)
        if room < 0 or len(newest) == _NOTES:
            break
        newest.append(bounded_message)
    return [first, *reversed(newest)], len(messages) - 1 - len(newest)


def bound_message(message: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Returns a message with its role, at most so many characters of its text, and the tool calls that it makes."""
    bounded_message: dict[str, Any] = {"role": str(message.get("role", ""))[:20]}
    bounded_message |= _cut("content", message.get("content"), most)
    if calls := message.get("tool_calls"):
        bounded_message |= _cut("tool_calls", calls, most)
    return bounded_message


def _cut(name: str, value: Any, most: int) -> dict[str, Any]:
    text = "" if value is None else value if isinstance(value, str) else to_json(value).decode()
    # Postgres keeps no NUL, not even escaped.
    text = text.replace("\0", "\ufffd").replace("\\u0000", "\ufffd")
    cut: dict[str, Any] = {name: text[:most]}
    return cut if len(text) <= most else cut | {f"{name}_characters": len(text)}


def _measure(message: Mapping[str, Any]) -> int:
    return len(message["content"]) + len(message.get("tool_calls", ""))
