"""The pages that are made from the code. `make docs` writes them; a test fails when one has drifted."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from baobab.http import protocol
from baobab.http.error_page import name_operation_routes
from baobab.mcp_server.errors import ERRORS
from baobab.runtime.agents.offers import ToolOffers
from baobab.runtime.agents.spec.spec import ToolRef
from baobab.runtime.agents.spec.validation import ToolOffer
from baobab.settings import CLIENT_APP, CLIENT_KEY, CLIENT_URL, PREFIX, Settings
from baobab.tools import toolsets
from baobab.tools.core.auth.callers import Anonymous, EndUser
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
    name_operations,
)
from baobab.tools.core.limits.plans import GB, MB, PLANS
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


_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "The server": ("data", "host", "port", "base_url", "workers", "drain_seconds", "jobs", "log_level", "access_log"),
    "Stores": ("database_url", "notices_url", "valkey_url", "kv", "objects_url", "row_security", "slow_statement_ms"),
    "Secrets": ("secret_key", "bootstrap_key", "metrics_token"),
    "Network": ("allowed_hosts", "trusted_proxies", "files_domain", "sites_domain", "dns_resolvers", "egress_allow"),
    "Accounts and mail": ("signup", "plan", "smtp_url", "mail_from"),
    "Models": (
        "ai_servers",
        "ai_probe",
        "ai_markup",
        "ai_drop_params",
        "ai_web_search",
        "ai_first_seconds",
        "ai_between_seconds",
        "ai_total_seconds",
    ),
    "Providers": (
        "simulators",
        "integrations",
        "integrations_clients",
        "integrations_key",
        "integrations_url",
        "integrations_webhook_secret",
        "meetings_provider",
        "meetings_key",
        "meetings_url",
        "meetings_webhook_secret",
        "people_live",
        "people_primary",
        "people_primary_key",
        "people_primary_url",
        "people_secondary",
        "people_secondary_key",
        "people_secondary_url",
        "people_tertiary",
        "people_tertiary_key",
        "people_tertiary_url",
        "people_routes",
        "people_price_percent",
    ),
    "Data of apps": ("run_retention_days", "undo_days", "undo_megabytes", "realtime_connections"),
    "Regions": ("region", "geography", "max_apps", "regions"),
    "Traces": ("otel_url", "trace_content"),
}
"""The sections of the page of settings, and the settings of each."""

_REFUSED, _FULL = "403 `plan_limit_exceeded`", "402 `QUOTA_STORAGE_EXCEEDED`"
_CAPS = {
    "Apps": ("apps", "403 `project_limit_reached`"),
    "API keys": ("api_keys", _REFUSED),
    "Model servers": ("model_servers", _REFUSED),
    "Rows of the audit log": ("audit_rows", "the oldest rows are removed"),
    "Size of the substrate": ("memory_bytes", _REFUSED),
    "Size of files of all apps in a region": ("file_bytes", _FULL),
    "Requests a minute, for each app": ("requests_per_minute", "429"),
    "Key-value operations a second, for each app": ("kv_ops_per_second", "429"),
    "Keys, for each app": ("kv_keys", "507 `kv_keys_exhausted`"),
    "Size of keys and values, for each app": ("kv_bytes", "507 `kv_storage_full`"),
    "Size of rows of tables, for each app": ("table_bytes", _FULL),
    "Users in a month, for each app": ("monthly_users", _REFUSED),
    "Agents, for each app": ("agents", _REFUSED),
    "Size of agents' graphs, for each app": ("agent_bytes", _REFUSED),
    "Tool servers, for each app": ("tool_servers", _REFUSED),
}
"""The limits of a plan as the page of settings shows them: the field, and what happens beyond it."""


def render_settings(_registry: Registry) -> str:
    properties = Settings.model_json_schema()["properties"]
    lines = [
        "# Settings",
        _MADE,
        "",
        "You configure a server with environment variables:",
        "",
        "```sh",
        f"{PREFIX}PORT=9000 {PREFIX}LOG_LEVEL=warning make serve",
        "```",
        "",
        "Options of `baobab serve`, such as `--port`, override them. If a value is wrong, or a variable with this",
        "prefix is not on this page, the server says so in one line and does not start. It has no use for "
        f"`{CLIENT_URL}`, `{CLIENT_KEY}` and `{CLIENT_APP}`, which are for [commands that call a server]"
        "(command-line.md#without-logging-in).",
    ]
    setting_names = [name for names in _SETTINGS.values() for name in names]
    assert sorted(setting_names) == sorted(Settings.model_fields), "every setting has one section"
    for title, names in _SETTINGS.items():
        lines += ["", f"## {title}", "", "| Variable | Takes | Default | What it is |", "|---|---|---|---|"]
        for name in names:
            field = Settings.model_fields[name]
            default = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
            default_text = f"`{default}`" if default else "empty"
            takes = _describe_schema(properties[name]).removesuffix(" or ``")
            lines.append(f"| `{PREFIX}{name.upper()}` | {takes} | {default_text} | {field.description} |")
    lines += [
        "",
        "## Plans",
        "",
        "A plan limits what an organisation and its apps can use. To give an organisation another plan, run this on",
        "the machine that has the data folder:",
        "",
        "```sh",
        "baobab plan ada@example.com launch",
        "```",
        "",
        "It takes effect at once. If the new plan is smaller, nothing is deleted except the oldest rows of the audit",
        f"log. `{PREFIX}PLAN` is the plan of new organisations. To lift all limits for everybody on your own server,",
        f"set `{PREFIX}PLAN=enterprise`. The first account's organisation can have any number of apps on every plan,",
        "because it belongs to whoever runs the server.",
        "",
        "| | " + " | ".join(f"`{name}`" for name in PLANS) + " | Beyond it |",
        "|---|" + "---|" * (len(PLANS) + 1),
    ]
    for caption, (cap_name, beyond) in _CAPS.items():
        caps = [_render_cap(cap_name, getattr(plan, cap_name)) for plan in PLANS.values()]
        lines.append(f"| {caption} | " + " | ".join(caps) + f" | {beyond} |")
    return _join_lines(lines)


def _render_cap(name: str, cap: int | None) -> str:
    if cap is None:
        return "no limit"
    if name.endswith("_bytes"):
        return f"{cap // GB} GiB" if cap >= GB else f"{cap // MB} MiB"
    return f"{cap:,}".replace(",", " ")


def render_errors(registry: Registry) -> str:
    lines = [
        "# Errors",
        _MADE,
        "",
        "Every error has a code, a message that says what happened, and a remediation that says what to do. Over",
        "REST, its JSON depends on the toolset, because each has the shape that its clients expect. Over MCP, all",
        "errors look the same: a result with `isError` and the text, and the same as data in",
        '`_meta["baobab/error"]`.',
        "",
        "| Toolsets | Shape of an error with the detail `name` |",
        "|---|---|",
        *_render_shapes(registry),
        "",
        "## Errors of operations",
        "",
        *_render_error_table(_list_operation_errors(registry), registry),
        "",
        "## Errors before an operation is found",
        "",
        "These requests fail before the server knows which operation they mean.",
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
        "Every tool, with its route, arguments and errors. A tool has the same name over MCP, in OpenAPI and on",
        "this page. The effect says what a call can do: `read` changes nothing, `write` adds or changes something,",
        "`destructive` removes or replaces something, `external` reaches outside the server. Each tool can also answer",
        "the general [errors](errors.md).",
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
        "The built-in tools that a [graph](graph-spec.md#tools) can use. They work in the agent's app, so leave",
        "`app_id` out. Tools that hand out rights are not among them. A call of a `read_write` tool waits for a",
        "person; a call of a `read_only` tool waits only if the graph or the caller's key says so. Runs of the",
        "app's users and visitors can use only the tools that are for them; saving an agent warns of the others.",
        "",
    ]
    offers = ToolOffers(registry)
    families: dict[str, list[str]] = {}
    for tool in registry.tools.values():
        if isinstance(offers.get_offer(ToolRef(source="builtin", name=tool.name)), ToolOffer):
            families.setdefault(tool.toolset.name, []).append(f"`{tool.name}`")
    lines += [f"- {name}: {', '.join(names)}" for name, names in families.items()]
    lines += [
        "",
        "| Tool | Mode | For users | For visitors | What it does |",
        "|---|---|---|---|---|",
    ]
    for tool in registry.tools.values():
        for name in tool.graph_names:
            offer = offers.get_offer(ToolRef(source="builtin", name=name.name))
            if isinstance(offer, ToolOffer):
                is_open = offer.exposed_to == "end_user"
                users, visitors = (
                    "yes" if is_open and tool.access.admits(caller) else "no"
                    for caller in (EndUser("app_0", "somebody"), Anonymous("app_0"))
                )
                own = name_operations(tool.summary)
                summary = own if name.name == tool.name else _render_graph_name(tool, name)
                lines.append(
                    f"| [`{name.name}`](tools.md#{tool.name}) | `{offer.mode}` | {users} | {visitors} | {summary} |"
                )
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
    apart = "" if tool.mcp else "; not offered over MCP"
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
        widening = ", ".join(f"`{name}`" for name in tool.widens)
        yield f"A key with limits cannot use these arguments where they widen access: {widening}."
    if tool.spends:
        yield ""
        spending = ", ".join(f"`{name}`" for name in sorted(tool.spends))
        yield f"A read-only key cannot use these arguments, because they spend money: {spending}."
    yield ""
    yield f"Who: {tool.access.description}"
    properties = tool.input_schema["properties"]
    if properties:
        yield ""
        yield "| Argument | Type | What it is |"
        yield "|---|---|---|"
        required_names = tool.input_schema.get("required", ())
        for name, schema in properties.items():
            suffix = "" if name in required_names else ", optional"
            about = name_operation_routes(schema.get("description", ""), registry) + _tell_defaults(tool, name)
            yield f"| `{name}` | {_describe_schema(schema)}{suffix} | {about} |"
    codes = sorted({tool.toolset.envelope.code(kind) for kind in tool.raises})
    if codes:
        yield ""
        yield "Its own errors: " + ", ".join(f"`{code}`" for code in codes)


def _tell_defaults(tool: Tool, argument: str) -> str:
    """The defaults of an argument, where they are not the same for all interfaces."""
    others = {
        interface: defaults[argument] for interface, defaults in tool.other_defaults.items() if argument in defaults
    }
    if not others:
        return ""
    places = {"mcp": "over MCP", "agent": "in graphs of agents", "console": "in the console"}
    defaults_by_place = ", ".join(f"`{value}` {places[interface]}" for interface, value in others.items())
    return f" Default: {defaults_by_place}, `{tool.input_schema['properties'][argument]['default']}` elsewhere."


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
    registry = Registry(toolsets())
    for path, page in PAGES.items():
        (ROOT / path).write_text(page(registry))
