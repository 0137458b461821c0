"""Templates of nodes, filled with what a run holds. What does not fit ends the run."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.templates import Template, TemplateError, rendered, rendered_each


def values_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """What templates and conditions see."""
    return {"state": state["state"], "input": state["input"]}


def render_tree(node_id: str, tree: Any, state: Mapping[str, Any]) -> Any:
    try:
        return rendered(tree, values_of(state))
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc


def render_each(node_id: str, tree: Any, state: Mapping[str, Any], items: list[Any]) -> list[Any]:
    try:
        return rendered_each(tree, values_of(state), items)
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc


def render_text(node_id: str, text: str, state: Mapping[str, Any]) -> str:
    try:
        return Template(text).render(values_of(state))
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc
