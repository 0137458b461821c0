"""Serves the static files of the server's own pages from memory, with a strict content security policy."""

from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PAGES = Path(__file__).parent / "pages"
HTML, CSS, SCRIPT = (f"text/{kind}; charset=utf-8" for kind in ("html", "css", "javascript"))

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def build_page_route(path: str, file: str, content_type: str) -> Route:
    """Builds the route of one file in `pages/`."""
    content = (PAGES / file).read_bytes()
    etag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = {
        "ETag": etag,
        # The file names have no version: checking the cached copy each time avoids mixing files of two releases.
        "Cache-Control": "no-cache",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    async def answer(request: Request) -> Response:
        if _matches_etag(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "Content-Type": content_type})

    return Route(path, answer, methods=["GET"], name=file, include_in_schema=False)


def _matches_etag(if_none_match: str, etag: str) -> bool:
    """Compares weakly, as RFC 9110 requires for If-None-Match: proxies that compress make our tag a weak one."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]
