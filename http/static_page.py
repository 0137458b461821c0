"""Serves the static files of the server's own pages from memory, with a strict content security policy."""

from pathlib import Path

from starlette.routing import Route

from baobab.http.public_document import PublicDocument

PAGES = Path(__file__).parent / "pages"
HTML, CSS, SCRIPT, PLAIN = (f"text/{kind}; charset=utf-8" for kind in ("html", "css", "javascript", "plain"))

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def build_page_route(path: str, file: str, content_type: str) -> Route:
    """Builds the route of one file in `pages/`."""
    return build_file_route(path, PAGES / file, content_type)


def build_file_route(path: str, file: Path, content_type: str) -> Route:
    """Builds the route of a file anywhere in the package."""
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    document = PublicDocument(file.read_bytes(), content_type, headers)
    return Route(path, document.answer, methods=["GET"], name=file.name, include_in_schema=False)
