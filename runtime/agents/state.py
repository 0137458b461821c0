"""The state of a run in LangGraph: its channels, and how writes of parallel tasks are merged."""

import operator
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict


def _merge_dicts(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other}


def _append_messages(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Appends messages to those of their node; None clears them."""
    return one | {node: [] if more is None else [*one.get(node, ()), *more] for node, more in other.items()}


class State(TypedDict, total=False):
    input: dict[str, Any]
    state: Annotated[dict[str, Any], _merge_dicts]
    talks: Annotated[dict[str, Any], _append_messages]
    said: Annotated[dict[str, Any], _append_messages]
    recalled: Annotated[dict[str, Any], _merge_dicts]
    items: Annotated[dict[str, Any], _merge_dicts]
    steps: Annotated[int, operator.add]
    calls: Annotated[int, operator.add]
    tainted: Annotated[bool, operator.or_]
    output: Any


def build_initial_state(run_input: Mapping[str, Any], *, tainted: bool = False) -> State:
    """Builds the state in which a run begins. tainted: whether its input contains text from outside."""
    return {
        "input": dict(run_input),
        "state": {},
        "talks": {},
        "said": {},
        "recalled": {},
        "items": {},
        "steps": 0,
        "calls": 0,
        "tainted": tainted,
        "output": None,
    }
