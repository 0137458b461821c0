"""Brings the messages of a conversation into the order that chat completions require."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any


def place_results(
    messages: Sequence[dict[str, Any]], further: Mapping[int, dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Returns the messages with the results of tools directly behind their calls.

    Clients may put other messages between them; providers refuse that. further: messages with the other parts of
    results, such as pictures, by the index of the result; they come behind all results of their calls.
    """
    further = further or {}
    waiting: dict[Any, deque[int]] = defaultdict(deque)
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            waiting[str(message.get("tool_call_id"))].append(index)
    placed_indexes: set[int] = set()
    ordered_messages: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        if index in placed_indexes:
            continue
        ordered_messages.append(message)
        indexes = [index] if message.get("role") == "tool" else []
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            results = waiting[str(call.get("id"))] if isinstance(call, dict) else deque[int]()
            while results and results[0] < index:
                results.popleft()
            if results:
                indexes.append(results.popleft())
                ordered_messages.append(messages[indexes[-1]])
        placed_indexes.update(indexes)
        ordered_messages += [further[each] for each in indexes if each in further]
    return ordered_messages
