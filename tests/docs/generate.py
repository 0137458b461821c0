"""The pages that are made from the code. `make docs` writes them; a test fails when one has drifted."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from baobab.http import protocol
from baobab.http.error_page import name_operation_routes
from baobab.mcp_server.errors import ERRORS
from baobab.runtime.agents.offers import ToolOffers
from baobab.runtime.agents.spec import ToolRef
from baobab.runtime.agents.validation import ToolOffer
from baobab.settings import PREFIX, Settings
from baobab.tools import toolsets
from baobab.tools.core.call import GraphName, Tool
from baobab.tools.core.envelopes import STRUCTURED, Envelope, envelope_for
from baobab.tools.core.errors import (
    BaobabError,
    BusyWithBodies,
    MethodNotAllowed,
    NoSocket,
    NotFound,
    RouteNotFound,
    ToolNotFound,
    WrongHost,
)
from baobab.tools.core.plans import PLANS
from baobab.tools.core.registry import Registry
from baobab.tools.core.tool_errors import errors_of
from baobab.tools.system.guidance import guidance
from tests.clients.page import render_page

ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:8000"

_OF_CONNECTIONS = [
    kind
    for kind in vars(protocol).values()
    if isinstance(kind, type) and issubclass(kind, BaobabError) and kind.__module__ == protocol.__name__
]
_OF_DOORS: tuple[type[BaobabError], ...] = (
    BusyWithBodies,
    MethodNotAllowed,
    NoSocket,
    RouteNotFound,
    ToolNotFound,
    WrongHost,
    *_OF_CONNECTIONS,
    *ERRORS,
)

_MADE = "<!-- Made by `make docs`. Change the code that it is made from. -->"


_CAPS = {
    "Apps": "apps",
    "API keys": "api_keys",
    "Model servers": "model_servers",
    "Rows of the audit log": "audit_rows",
    "Of an app: requests a minute": "requests_per_minute",
    "KV operations a second": "kv_ops_per_second",
    "KV bytes": "kv_bytes",
    "KV keys": "kv_keys",
    "bytes of files": "file_bytes",
    "users in a month": "monthly_users",
    "bytes of rows": "table_bytes",
    "agents": "agents",
    "bytes of their graphs": "agent_bytes",
    "tool servers": "tool_servers",
}
"""The caps of a plan as the page of settings shows them."""


def render_settings(_registry: Registry) -> str:
    properties = Settings.model_json_schema()["properties"]
    lines = [
        "# Settings",
        _MADE,
        "",
        f"Settings are environment variables with the prefix `{PREFIX}`. A variable with this prefix that is not in",
        "the table is an error, and so is a wrong value: the server says which in one line and does not start. Options",
        "of `baobab serve` win over the environment.",
        "",
        "| Variable | Takes | Default | What it is |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
        shown = f"`{default}`" if default else "empty"
        lines.append(
            f"| `{PREFIX}{name.upper()}` | {_describe_schema(properties[name])} | {shown} | {field.description} |"
        )
    lines += [
        "",
        "## Plans",
        "",
        f"What an organisation has room for, and what each of its apps may use. `{PREFIX}PLAN` is the plan of new",
        "organisations; one that is full is answered 403 `plan_limit_exceeded`, or `project_limit_reached` for apps.",
        "What is there already stays, also where it is more than a plan has room for.",
        "",
        "The operator gives an organisation another plan on the machine that has the data folder:",
        "`baobab plan ada@example.com launch`. A running server knows it at once.",
        "",
        "The organisation of the first account has as many apps as it likes, whatever its plan: it belongs to whoever",
        f"runs the server. To give the same to everybody on a server of your own, set `{PREFIX}PLAN=enterprise`.",
        "",
        "| | " + " | ".join(f"`{name}`" for name in PLANS) + " |",
        "|---|" + "---|" * len(PLANS),
    ]
    for caption, cap_name in _CAPS.items():
        caps = [getattr(plan, cap_name) for plan in PLANS.values()]
        lines.append(f"| {caption} | " + " | ".join("no cap" if cap is None else str(cap) for cap in caps) + " |")
    return _join_lines(lines)


def render_errors(registry: Registry) -> str:
    lines = [
        "# Errors",
        _MADE,
        "",
        "Every refusal has a code, a message that says what happened, and a remediation that says what to do. How they",
        "are wrapped over REST depends on the toolset: each has one shape, which its clients expect.",
        "Over MCP there is one for all: the text of a result with `isError`, and the same as data in",
        '`_meta["baobab/error"]`.',
        "",
        "| Toolsets | Shape, by the example of a thing that is not there, with `name` as its detail |",
        "|---|---|",
        *_render_shapes(registry),
        "",
        "## Of operations",
        "",
        *_render_error_table(_list_operation_errors(registry), registry),
        "",
        "## Of the doors",
        "",
        "What is wrong with these requests is noticed before their operation is found.",
        "",
        *_render_error_table(((STRUCTURED, kind) for kind in _OF_DOORS), registry),
    ]
    return _join_lines(lines)


def _render_shapes(registry: Registry) -> Iterator[str]:
    families: dict[str, list[str]] = {}
    for toolset in registry.toolsets:
        if any(tool.rest for tool in toolset.tools.values()):
            body = toolset.envelope.render(NotFound("...", remediation="...", details={"name": "x"}), f"{ADDRESS}/docs")
            families.setdefault(json.dumps(body), []).append(toolset.name)
    for shape, names in sorted(families.items(), key=lambda item: -len(item[1])):
        yield f"| {', '.join(names)} | `{shape}` |"


def render_tools(registry: Registry) -> str:
    lines = [
        "# Tools",
        _MADE,
        "",
        "Every tool has one name: its MCP tool, its OpenAPI operation and its entry here are the same thing. The",
        "effect says what a call can do: `read` changes nothing, `write` changes what can be changed back,",
        "`destructive` loses something, `external` reaches beyond the platform. Beside its own errors a tool answers",
        "those that any tool may: see [errors](errors.md) for all of them.",
    ]
    for toolset in registry.toolsets:
        lines += ["", f"## {toolset.name}", "", toolset.description]
        for tool in toolset.tools.values():
            lines += ["", *_render_tool(tool, registry)]
    return _join_lines(lines)


def render_graph_tools(registry: Registry) -> str:
    lines = [
        "# Tools of a graph",
        _MADE,
        "",
        "The built-in tools that a [graph](graph-spec.md#tools) may use: those about its app, but for what hands out",
        "rights. Leave `app_id` out: the app is bound. Calls of a `read_write` tool wait for a person;",
        "those of a `read_only` tool wait only where the graph or the caller's key says so. Only tools for users",
        "are there in runs of the app's users.",
        "",
        "| Tool | Mode | For users | What it does |",
        "|---|---|---|---|",
    ]
    offers = ToolOffers(registry)
    for tool in registry.tools.values():
        for name in tool.graph_names:
            offer = offers.get_offer(ToolRef(source="builtin", name=name.name))
            if isinstance(offer, ToolOffer):
                users = "yes" if offer.exposed_to == "end_user" else "no"
                summary = tool.summary if name.name == tool.name else _render_graph_name(tool, name)
                lines.append(f"| [`{name.name}`](tools.md#{tool.name}) | `{offer.mode}` | {users} | {summary} |")
    return _join_lines(lines)


def _render_graph_name(tool: Tool, name: GraphName) -> str:
    arguments = ", ".join(f"`{theirs}` for `{own}`" for own, theirs in name.arguments.items())
    return f"The same as `{tool.name}`{f', with {arguments}' if arguments else ''}."


def render_llms_txt(registry: Registry) -> str:
    return guidance(registry, ADDRESS)


PAGES: Mapping[str, Callable[[Registry], str]] = {
    "docs/clients.md": lambda _registry: render_page(_MADE),
    "docs/errors.md": render_errors,
    "docs/graph-tools.md": render_graph_tools,
    "docs/settings.md": render_settings,
    "docs/tools.md": render_tools,
    "llms.txt": render_llms_txt,
}


def _render_tool(tool: Tool, registry: Registry) -> Iterator[str]:
    yield f"### {tool.name}"
    yield ""
    apart = "" if tool.mcp else "; models are not offered it over MCP"
    yield f"{f'`{tool.rest.method} {tool.rest.path}`, ' if tool.rest else ''}{tool.effect}{apart}"
    yield ""
    yield name_operation_routes(tool.description, registry)
    if tool.destructive_when is not None:
        yield ""
        yield f"Counts as destructive {tool.destructive_when}."
    if tool.grants:
        yield ""
        yield "A key with limits cannot use it."
    elif tool.widens:
        yield ""
        yield f"A key with limits cannot give, where it widens something: {', '.join(f'`{n}`' for n in tool.widens)}."
    if tool.spends:
        yield ""
        yield f"A key that only reads cannot give, because it spends money: {', '.join(f'`{n}`' for n in tool.spends)}."
    yield ""
    yield f"Who: {tool.access.description}"
    properties = tool.input_schema["properties"]
    if properties:
        yield ""
        yield "| Argument | Type | What it is |"
        yield "|---|---|---|"
        required = tool.input_schema.get("required", ())
        for name, schema in properties.items():
            needed = "" if name in required else ", optional"
            about = name_operation_routes(schema.get("description", ""), registry)
            yield f"| `{name}` | {_describe_schema(schema)}{needed} | {about} |"
    codes = sorted({tool.toolset.envelope.code(kind) for kind in tool.raises})
    if codes:
        yield ""
        yield "Its own errors: " + ", ".join(f"`{code}`" for code in codes)


def _describe_schema(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        return " or ".join(_describe_schema(kind) for kind in schema["anyOf"])
    kind = schema.get("type", "any JSON value")
    if kind == "array":
        return f"list of {_describe_schema(schema['items'])}" if "items" in schema else "list"
    bounds = [f"from {schema['minimum']}"] if "minimum" in schema else []
    bounds += [f"to {schema['maximum']}"] if "maximum" in schema else []
    bounds += [f"up to {schema['maxLength']} characters"] if "maxLength" in schema else []
    return " ".join([kind, *bounds])


def _render_error_table(kinds: Iterable[tuple[Envelope, type[BaobabError]]], registry: Registry) -> Iterator[str]:
    yield "| Code | Status | What happened | What to do |"
    yield "|---|---|---|---|"
    rows = {
        (
            family.code(kind),
            kind.status,
            name_operation_routes(kind.summary, registry),
            name_operation_routes(envelope_for(family, kind).place_details(kind.remediation), registry),
        )
        for family, kind in kinds
    }
    yield from (f"| `{code}` | {status} | {summary} | {remedy} |" for code, status, summary, remedy in sorted(rows))


def _list_operation_errors(registry: Registry) -> Iterator[tuple[Envelope, type[BaobabError]]]:
    for tool in registry.tools.values():
        for kind in errors_of(tool):
            yield tool.toolset.envelope, kind


def _join_lines(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = Registry(toolsets())
    for path, page in PAGES.items():
        (ROOT / path).write_text(page(made))
