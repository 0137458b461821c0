"""/docs/errors: every code, what it means and what to do; where `documentation_url` leads."""

from html import escape

from fastapi import Response

from baobab.http.openapi import errors_of
from baobab.tools.errors import BaobabError
from baobab.tools.registry import Registry

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Errors · Baobab</title><link rel="stylesheet" href="/docs/docs.css"></head>
<body><main class="errors"><h1>Errors</h1><p><a href="/docs">API reference</a></p>{entries}</main></body></html>
"""
_ENTRY = '<section id="{anchor}"><h2><code>{code}</code> · {status}</h2><p>{summary}</p><p><b>Do:</b> {remedy}</p></section>'
_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def every_error(registry: Registry) -> list[tuple[str, type[BaobabError]]]:
    """All codes that operations can answer, in the words of their families, sorted."""
    found: dict[str, type[BaobabError]] = {}
    for tool in registry.tools.values():
        for kind in errors_of(tool):
            found.setdefault(tool.toolset.envelope.code(kind), kind)
    return sorted(found.items())


def error_page(registry: Registry) -> Response:
    entries = "\n".join(
        _ENTRY.format(
            anchor=code.lower().replace("_", "-"),
            code=escape(code),
            status=kind.status,
            summary=escape(kind.summary),
            remedy=escape(kind.remediation),
        )
        for code, kind in every_error(registry)
    )
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
    return Response(_PAGE.format(entries=entries), media_type="text/html; charset=utf-8", headers=headers)
