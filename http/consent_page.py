"""The page on which a person allows an MCP client a key, or refuses it: static files whose script calls the
REST API.
"""

from starlette.routing import Route

from baobab.http.static_page import CSS, HTML, SCRIPT, build_page_route


def consent_routes() -> list[Route]:
    return [
        build_page_route("/oauth/consent", "consent.html", HTML),
        build_page_route("/oauth/consent/consent.css", "consent.css", CSS),
        build_page_route("/oauth/consent/consent.js", "consent.js", SCRIPT),
        build_page_route("/oauth/consent/signin.js", "signin.js", SCRIPT),
    ]
