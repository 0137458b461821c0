"""The API reference at /docs: three static files that render the server's own /openapi.json, offline."""

from starlette.routing import Route

from baobab.http.static_page import CSS, HTML, SCRIPT, build_page_route


def docs_routes() -> list[Route]:
    return [
        build_page_route("/docs", "docs.html", HTML),
        build_page_route("/docs/docs.css", "docs.css", CSS),
        build_page_route("/docs/docs.js", "docs.js", SCRIPT),
    ]
