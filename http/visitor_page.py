"""What a browser shows instead of a page of an app's site: a sentence, for people who know nothing of this server."""

from html import escape

from baobab.http.answer import Headers, Reply, error_headers
from baobab.http.hosts import is_api_path
from baobab.http.request import Request
from baobab.tools.core.errors import BaobabError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title></head>
<body><main><h1>{title}</h1><p>{wait}</p><p><small>{code}, {request_id}</small></p></main></body></html>
"""
_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_LATER, _ELSEWHERE = "Please try again later.", "Please check the address."


def wants_page(request: Request) -> bool:
    """Returns whether a browser asks for a page of an app's site, and not for the app's API."""
    if not request.is_at_app or request.method not in ("GET", "HEAD"):
        return False
    is_of_site = not is_api_path(request.path) if request.tool is None else _is_page(request)
    return is_of_site and b"text/html" in (request.header(b"accept") or b"").lower()


async def send_visitor_page(reply: Reply, error: BaobabError, code: str, request: Request, headers: Headers) -> None:
    """Sends an error as a page. It says what happened, and nothing that only those who run the app can do."""
    wait = _LATER if error.retry_after is not None or error.status in (429, 503) else _ELSEWHERE
    texts = {"title": error.message, "wait": wait, "code": code, "request_id": request.id}
    body = _PAGE.format(**{name: escape(text) for name, text in texts.items()}).encode()
    headers += [(name.encode(), value.encode("latin-1")) for name, value in error_headers(error).items()]
    headers += [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"content-security-policy", _POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"vary", b"accept"),
        (b"cache-control", b"no-store"),
    ]
    await reply(error.status, headers, b"" if request.method == "HEAD" else body)


def _is_page(request: Request) -> bool:
    return request.tool is not None and request.tool.rest is not None and request.tool.rest.site
