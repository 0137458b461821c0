"""The state of a run as LangGraph keeps it: what its nodes write, and how writes of one moment are joined."""

import operator
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other}


def _talked(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Messages are added to those of their node; None begins it anew."""
    return one | {node: [] if more is None else [*one.get(node, ()), *more] for node, more in other.items()}


class State(TypedDict, total=False):
    input: dict[str, Any]
    state: Annotated[dict[str, Any], _merged]
    talks: Annotated[dict[str, Any], _talked]
    said: Annotated[dict[str, Any], _talked]
    recalled: Annotated[dict[str, Any], _merged]
    items: Annotated[dict[str, Any], _merged]
    steps: Annotated[int, operator.add]
    calls: Annotated[int, operator.add]
    tainted: Annotated[bool, operator.or_]
    output: Any


def begun(given: Mapping[str, Any], *, tainted: bool = False) -> State:
    """The state in which a run begins. tainted: whether its input holds text from outside."""
    return {
        "input": dict(given),
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
