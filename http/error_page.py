"""/docs/errors: what each error code means and what to do. `documentation_url` points here."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from baobab.http.public_document import PublicDocument
from baobab.tools.core.envelopes import STRUCTURED, Envelope, envelope_for
from baobab.tools.core.errors import (
    BaobabError,
    BusyWithBodies,
    MethodNotAllowed,
    NoSocket,
    RouteNotFound,
    ToolNotFound,
    WrongHost,
    name_operations,
)
from baobab.tools.core.registry import Registry
from baobab.tools.core.tool_errors import errors_of

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Errors · Baobab</title><link rel="stylesheet" href="/docs/docs.css"></head>
<body><main class="errors"><h1>Errors</h1><p><a href="/docs">API reference</a></p>{entries}</main></body></html>
"""
_ENTRY = '<section id="{anchor}"><h2>{codes}</h2>{causes}</section>'
_CAUSE = "<p>{status} · {summary}</p><p><b>Do:</b> {remedy}</p>"
_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

# Errors that occur before a request has been matched to an operation.
_BEFORE_OPERATIONS: tuple[type[BaobabError], ...] = (
    BusyWithBodies,
    MethodNotAllowed,
    NoSocket,
    RouteNotFound,
    ToolNotFound,
    WrongHost,
)

Cause = tuple[int, str, str]


@dataclass
class Section:
    """The section of one anchor: error codes that differ only in case, and their causes."""

    codes: set[str] = field(default_factory=set)
    causes: set[Cause] = field(default_factory=set)


def collect_errors(registry: Registry, interface_errors: Sequence[type[BaobabError]] = ()) -> dict[str, Section]:
    """Returns a section for each error code, by anchor, in the format of its envelope.

    interface_errors: errors that other interfaces raise themselves.
    """
    sections: defaultdict[str, Section] = defaultdict(Section)

    def add(envelope: Envelope, kind: type[BaobabError]) -> None:
        code = envelope.code(kind)
        section = sections[code.lower().replace("_", "-")]
        section.codes.add(code)
        remedy = name_operation_routes(envelope_for(envelope, kind).place_details(kind.remediation), registry)
        section.causes.add((kind.status, name_operation_routes(kind.summary, registry), remedy))

    for kind in (*_BEFORE_OPERATIONS, *interface_errors):
        add(STRUCTURED, kind)
    for tool in registry.tools.values():
        for kind in (*errors_of(tool), MethodNotAllowed):
            add(tool.toolset.envelope, kind)
    return dict(sorted(sections.items()))


def name_operation_routes(text: str, registry: Registry) -> str:
    """Replaces each operation in an error's text by its tool name and its route."""

    def name_with_route(name: str) -> str:
        route = registry.name_by_route(name)
        return name if route == name else f"{name} ({route})"

    return name_operations(text, name_with_route)


def build_error_page(registry: Registry, interface_errors: Sequence[type[BaobabError]]) -> PublicDocument:
    entries = "\n".join(
        _ENTRY.format(anchor=anchor, codes=_render_codes(section), causes=_render_causes(section))
        for anchor, section in collect_errors(registry, interface_errors).items()
    )
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
    return PublicDocument(_PAGE.format(entries=entries).encode(), "text/html; charset=utf-8", headers)


def _render_codes(section: Section) -> str:
    return ", ".join(f"<code>{escape(code)}</code>" for code in sorted(section.codes))


def _render_causes(section: Section) -> str:
    return "".join(
        _CAUSE.format(status=status, summary=escape(summary), remedy=escape(remedy))
        for status, summary, remedy in sorted(section.causes)
    )
