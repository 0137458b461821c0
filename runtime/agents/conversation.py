"""The conversation of a node with its model: how it opens, what is remembered of it, and how its answer is parsed."""

import json
from collections.abc import Sequence
from typing import Any

from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.model_answers import ModelAnswer
from baobab.runtime.agents.rendering import render_text
from baobab.runtime.agents.run_session import Message
from baobab.runtime.agents.spec.answer_schema import find_mismatch
from baobab.runtime.agents.spec.bounds import find_violations
from baobab.runtime.agents.spec.spec import LlmNode
from baobab.runtime.agents.state import State

_LONGEST_REPAIRED = 64 * 1024
"""The most characters of an answer that a model is asked to repair."""
REPAIR = "Answer again, with the JSON that was asked for and nothing else."
"""The message that asks a model again if its answer does not match its schema."""


def open_conversation(node_id: str, node: LlmNode, state: State) -> list[Message]:
    system: list[Message] = [{"role": "system", "content": render_text(node_id, node.system_prompt, state)}]
    input_text = json.dumps(state["input"], ensure_ascii=False) if node.input_template is None else None
    user_text = input_text if input_text is not None else render_text(node_id, node.input_template or "", state)
    return [*(system if node.system_prompt else []), {"role": "user", "content": user_text}]


def insert_earlier(talk: list[Message], earlier: Sequence[Message]) -> list[Message]:
    """Inserts the earlier messages of the thread into a conversation, after its system prompt."""
    prompts = 1 if talk[0]["role"] == "system" else 0
    return [*talk[:prompts], *earlier, *talk[prompts:]]


def last_turn(talk: list[Message]) -> list[Message]:
    """Returns the last message of the user and all messages after it."""
    start = max(index for index, message in enumerate(talk) if message["role"] == "user")
    return talk[start:]


def is_repairable(talk: list[Message], message: Message) -> bool:
    """Returns whether a model may be asked to repair an answer: only once, and only if its answer can be kept."""
    text = message.get("content") or ""
    return len(text) <= _LONGEST_REPAIRED and find_violation(text) is None and not any(map(_is_repair, talk))


def _is_repair(message: Message) -> bool:
    return message["role"] == "user" and str(message.get("content")).startswith(REPAIR)


def remove_repair(talk: list[Message]) -> list[Message]:
    """Removes an answer that did not match its schema, and the request to repair it."""
    messages: list[Message] = []
    for message in talk:
        if _is_repair(message) and messages and messages[-1]["role"] == "assistant":
            messages.pop()
        else:
            messages.append(message)
    return messages


def _strip_fence(text: str) -> str:
    """Strips the code fence that some models put around their JSON."""
    text = text.strip()
    is_fenced = text.startswith("```") and text.endswith("```") and "\n" in text
    return text[text.index("\n") + 1 : -3] if is_fenced else text


_CUTS = {
    "refusal": "refusal",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "tool_calls": "call_lost",
    "function_call": "call_lost",
}


def find_cut(answer: ModelAnswer) -> str | None:
    """Returns in which way an answer without calls is not whole: `length`, `content_filter`, `refusal` or `call_lost`.

    None for a whole one.
    """
    return "refusal" if answer.refusal else _CUTS.get(answer.finish_reason)


_CUT_TEXTS = {
    "length": "It was cut at the limit of tokens (`max_tokens` of the node, or the model's own)",
    "content_filter": "The provider's content filter cut it",
    "refusal": "The model refused to answer",
    "call_lost": "The provider announced a call of a tool and sent none",
}


def describe_cut(cut: str | None) -> str:
    """Returns what happened to an answer that is not whole, for the end of a sentence; empty for a whole one."""
    return "" if cut is None else f" {_CUT_TEXTS[cut]}."


def parse_answer(node: LlmNode, message: Message) -> Any:
    text = message.get("content") or ""
    if node.output_schema is None:
        return text
    text = _strip_fence(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise RunFailed("invalid_output", "The model's answer is not the JSON that was asked for.") from exc
    if violation := find_violation(value):
        raise RunFailed("invalid_output", f"The model's answer {violation}.")
    if mismatch := find_mismatch(node.output_schema, value):
        raise RunFailed("invalid_output", f"The model's answer does not match its `output_schema`: {mismatch}.")
    return value


def find_violation(value: Any) -> str | None:
    """Returns why a model's value cannot be stored: Python parses more than JSON allows and databases can store."""
    return next((issue.message for issue in find_violations(value)), None)
