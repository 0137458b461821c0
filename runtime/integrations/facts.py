"""What is known of the curated toolkits, as data: a file for each in `toolkits/`, read once.

A file has the toolkit's `name` and `description`, its `scopes` with plain words for people, its `tools`, and where and
how OAuth is done (`oauth`, `account`). A tool is one HTTP request: `method`, `url` with places for parameters, `query`
and `body` by the service's names of the parameters. What is more than that is a function by name: `first` builds the
body, `then` reads on (handlers.py).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from baobab.runtime.bounded_schema import BoundedSchema, SchemaUnusable
from baobab.runtime.integrations.provider import CURATED, Scope, ToolFacts, ToolFailed, Toolkit
from baobab.runtime.work_budget import Budget, OverBudget

_MOST_STEPS, _MOST_BYTES = 100_000, 2 * 2**20


@dataclass(frozen=True, slots=True)
class Request:
    """The HTTP request of a tool."""

    method: str
    url: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, str] | None = None
    first: str | None = None
    then: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """A toolkit with its tools. requests: by the tools' names. oauth, account: as the file has them."""

    toolkit: Toolkit
    tools: Mapping[str, ToolFacts]
    requests: Mapping[str, Request]
    oauth: Mapping[str, Any]
    account: Mapping[str, Any]


@cache
def load_facts() -> Mapping[str, Facts]:
    """Returns what is known of the curated toolkits, by slug, in their order."""
    folder = files("baobab.runtime.integrations").joinpath("toolkits")
    return {slug: _read(slug, folder.joinpath(f"{slug}.toml").read_text("utf-8")) for slug in CURATED}


def _read(slug: str, text: str) -> Facts:
    content = tomllib.loads(text)
    scopes = tuple(Scope(each["name"], each["words"]) for each in content["scopes"])
    toolkit = Toolkit(slug, content["name"], content["description"], scopes=scopes)
    tools, requests = {}, {}
    for each in content["tools"]:
        name = each["name"]
        schema = {"type": "object", "properties": each.get("parameters", {}), "required": each["required"]}
        parameters = {**schema, "additionalProperties": False}
        effect, needed_scopes = each.get("effect", "external"), tuple(each.get("scopes", ()))
        tools[name] = ToolFacts(name, slug, each["description"], parameters, effect, needed_scopes)
        requests[name] = Request(
            each["method"], each["url"], each.get("query", {}), each.get("body"), each.get("first"), each.get("then")
        )
    return Facts(toolkit, tools, requests, content["oauth"], content["account"])


def complete_params(tool: ToolFacts, params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters with the defaults of those that were left out. Raises ToolFailed, which names the fault.

    A schema of a provider that we cannot read checks nothing: the provider checks it itself.
    """
    properties = tool.parameters.get("properties", {})
    defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
    values = {**defaults, **{name: value for name, value in params.items() if value is not None}}
    try:
        fault = BoundedSchema(tool.parameters, Budget(_MOST_STEPS, _MOST_BYTES)).find_fault(tool.parameters, values)
    except (SchemaUnusable, OverBudget):
        return values
    if fault is not None:
        place = ".".join(str(part) for part in fault.absolute_path)
        where = f"`params.{place}`" if place else "`params`"
        raise ToolFailed(f"{where} of {tool.name}: {fault.message[:300]}")
    return values
