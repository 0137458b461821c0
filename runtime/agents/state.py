"""The state of a run in LangGraph: its channels, and how writes of parallel tasks are merged."""

import operator
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict


def _merge_dicts(current: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    return {**current, **update}


def _append_messages(current: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """Appends messages to those of their node; None clears them."""
    return current | {node: [] if more is None else [*current.get(node, ()), *more] for node, more in update.items()}


def _keep_first(current: Any, update: Any) -> Any:
    return current or update


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
    incomplete: Annotated[dict[str, Any] | None, _keep_first]


def build_initial_state(run_input: Mapping[str, Any], *, tainted: bool = False) -> State:
    """Builds the state in which a run begins. tainted: whether its input contains text from outside.

    The other channels begin empty. Those that readers of checkpoints name are given, because a checkpoint contains only
    channels that were written.
    """
    return {"input": dict(run_input), "state": {}, "talks": {}, "steps": 0, "tainted": tainted}
