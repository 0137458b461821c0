"""Checks the arguments that a node gives a built-in tool, so that a mistake is found before a run."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from baobab.runtime.agents.spec.issue import Issue, Path, quote_name
from baobab.runtime.agents.spec.shape import MESSAGES, suggest_name
from baobab.runtime.agents.spec.templates import TemplateError, fill_tree
from baobab.tools.core.call import GraphName, Tool
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.invalid import describe_fault, find_nulls, follow
from baobab.tools.core.spellings import find_argument

_MESSAGES = {**MESSAGES, "extra_forbidden": "is not a field here"}


def find_argument_issues(tool: Tool, graph_name: GraphName, arguments: Mapping[str, Any]) -> Iterator[Issue]:
    """Finds what the tool would refuse in every run: unknown and missing names, and wrong values without placeholders.

    arguments: templates by the names of the graph. The app is not looked at, because the run sets it.
    """
    own_names = {theirs: own for own, theirs in graph_name.arguments.items()}
    given_names = {own_names.get(name, name): name for name in arguments}
    required_names, allowed_names = tool.argument_names
    fields = {info.alias or field: field for field, info in tool.arguments.model_fields.items()}
    fields.pop(tool.app_parameter or "", None)
    names = [graph_name.arguments.get(own, own) for own in fields]
    listing = f"; its arguments are {', '.join(names)}" if names else "; it takes none"
    for own, name in given_names.items():
        if own in fields:
            yield from _find_value_issues(tool, fields[own], name, arguments[name], required=own in required_names)
        elif allowed_names is not None and own not in allowed_names:
            right_name = find_argument(tool, fields, own)
            shown_name, is_known = graph_name.arguments.get(right_name, right_name), right_name != own
            suggestion = f"; did you mean {quote_name(shown_name)}?" if is_known else suggest_name(name[:64], names)
            yield Issue((name,), f"is not an argument of {graph_name.name}{suggestion}{listing}")
    for own, name in zip(fields, names, strict=True):
        if own in required_names and own not in given_names:
            yield Issue((name,), f"is required by {graph_name.name}{listing}")


def _find_value_issues(tool: Tool, field: str, name: str, template: Any, *, required: bool) -> Iterator[Issue]:
    """Finds what is wrong with the value of an argument, which is not known where it has a placeholder."""
    try:
        value = fill_tree(template, {})
    except TemplateError:
        return
    model = tool.arguments
    try:
        model.__pydantic_validator__.validate_assignment(model.model_construct(), field, value)
    except BaobabError as exc:
        yield Issue((name,), f"is not valid: {exc.message.removesuffix('.')}")
    except ValidationError as exc:
        if (value is None and not required) or (value is not None and find_nulls({field: value}, exc)):
            # A call takes a null where nothing is required for left out.
            return
        problems: dict[Path, list[str]] = {}
        for fault in exc.errors(include_url=False, include_input=False):
            if fault["type"] == "is_instance_of":
                # A stream, which no graph can give: the other branch takes a text.
                continue
            path = follow({field: value}, fault["loc"])[0][1:]
            if fault["type"] == "missing":
                path = (*path, fault["loc"][-1])
            problem = _MESSAGES.get(fault["type"]) or describe_fault(fault, tool.input_schema)
            problems.setdefault((name, *path), []).append(re.sub(r"^\w+ should ", "must ", problem))
        for path, texts in problems.items():
            yield Issue(path, " or ".join(dict.fromkeys(texts)))
