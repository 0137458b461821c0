"""The page on which a person lets an MCP client have a key, or refuses it: static files that ask the REST door."""

from starlette.routing import Route

from baobab.http.static_page import CSS, HTML, SCRIPT, page


def consent_routes() -> list[Route]:
    return [
        page("/oauth/consent", "consent.html", HTML),
        page("/oauth/consent/consent.css", "consent.css", CSS),
        page("/oauth/consent/consent.js", "consent.js", SCRIPT),
        page("/oauth/consent/signin.js", "signin.js", SCRIPT),
    ]
