"""Renders the templates of nodes with the values of a run. An error of a template fails the run."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.spec.templates import Template, TemplateError, fill_each, fill_tree


def template_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that templates and conditions see."""
    return {"state": state["state"], "input": state["input"]}


def render_tree(node_id: str, tree: Any, state: Mapping[str, Any]) -> Any:
    try:
        return fill_tree(tree, template_values(state))
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc


def render_each(node_id: str, tree: Any, state: Mapping[str, Any], items: list[Any]) -> list[Any]:
    try:
        return fill_each(tree, template_values(state), items)
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc


def render_text(node_id: str, text: str, state: Mapping[str, Any]) -> str:
    try:
        return Template(text).render(template_values(state))
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc
