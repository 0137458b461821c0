"""A model's answer for the graph: its message, why it ended, and which of its calls arrived whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.runtime.gateway.reasoning import keep_reasoning
from baobab.runtime.gateway.tool_calls import is_cut_off


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer: one message in the form of OpenAI's chat completions.

    finish_reason: why the answer ended, in the provider's word: `stop`, `tool_calls`, `length` where a limit cut it,
    `content_filter` and others; empty if it gave none. refusal: the model's own words where it refuses to answer.
    complete_calls: for each of the message's tool calls, whether its arguments arrived whole; False where the answer
    breaks off in them.
    """

    message: dict[str, Any]
    finish_reason: str = ""
    refusal: str | None = None
    complete_calls: tuple[bool, ...] = ()


def parse_model_answer(completion: Mapping[str, Any]) -> ModelAnswer:
    """Parses the first choice of a chat completion."""
    choices = completion.get("choices") or [{}]
    message, reason = choices[0].get("message") or {}, choices[0].get("finish_reason") or ""
    # A refusal stands in a field of its own; people read it in place of the answer.
    content = message.get("content") or message.get("refusal") or message.get("content")
    kept_message: dict[str, Any] = {"role": "assistant", "content": content}
    calls = message.get("tool_calls") or []
    if calls:
        # With its calls the provider wants its reasoning back, until it has answered.
        kept_message |= {"tool_calls": calls, **keep_reasoning(message)}
    complete_calls = tuple(not is_cut_off(_get_arguments(call), reason) for call in calls)
    return ModelAnswer(kept_message, str(reason), message.get("refusal") or None, complete_calls)


def _get_arguments(call: Mapping[str, Any]) -> str:
    return str((call.get("function") or {}).get("arguments") or "")
