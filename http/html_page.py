"""Small HTML pages without scripts, in the style of /docs."""

from html import escape
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from baobab.http.public_document import PublicDocument

_SHEET = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title} · Baobab</title>
<link rel="icon" href="{root}favicon.ico"><link rel="stylesheet" href="{root}docs/docs.css">
<link rel="stylesheet" href="{root}docs/guide.css"></head>
<body{kind}>{before}<main class="guide" id="main" tabindex="-1">{body}</main>{after}</body></html>
"""
_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "vary": "accept",
    "x-content-type-options": "nosniff",
}


def render_page(title: str, body: str, *, root: str, status: int = 200, forms: str | None = None) -> Response:
    """Renders a page. body: HTML. root: the relative path from the page to the server's root, such as `../`.

    forms: where a browser may go with a form of the page, as in a content security policy; None if it has no form.
    """
    html = _SHEET.format(title=escape(title), body=body, root=root, kind="", before="", after="")
    headers = {**_HEADERS, "content-type": "text/html; charset=utf-8"}
    if forms is not None:
        policy = _HEADERS["content-security-policy"].replace("form-action 'none'", f"form-action {forms}")
        # With `no-referrer` a browser would send `Origin: null` with our own forms.
        headers |= {"content-security-policy": policy, "referrer-policy": "same-origin", "cache-control": "no-store"}
        headers["x-frame-options"] = "DENY"
    return Response(html, status, headers)


def build_page(title: str, body: str, *, root: str, before: str, after: str) -> PublicDocument:
    """Builds a page that is the same for everybody. body, root: as for `render_page`. before, after: the HTML around
    its main part.
    """
    kind = ' class="docs"'
    html = _SHEET.format(title=escape(title), body=body, root=root, kind=kind, before=before, after=after)
    return PublicDocument(html.encode(), "text/html; charset=utf-8", _HEADERS)


def build_text(content: str, media_type: str) -> PublicDocument:
    """Builds a page as text for programs, with the same headers."""
    return PublicDocument(f"{content.rstrip()}\n".encode(), f"{media_type}; charset=utf-8", _HEADERS)


def accepts(request: Request, media_type: str) -> bool:
    """Returns whether the client accepts a media type by name."""
    accepted_types = request.headers.get("accept", "").lower().split(",")
    return any(part.partition(";")[0].strip() == media_type for part in accepted_types)
