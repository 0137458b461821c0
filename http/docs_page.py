"""The API reference at /docs: three static files that draw the server's own /openapi.json, offline."""

from starlette.routing import Route

from baobab.http.static_page import CSS, HTML, SCRIPT, page


def docs_routes() -> list[Route]:
    return [
        page("/docs", "docs.html", HTML),
        page("/docs/docs.css", "docs.css", CSS),
        page("/docs/docs.js", "docs.js", SCRIPT),
    ]
