"""The pages on which a person sees waiting calls and decides on them: static files whose scripts call the REST API."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from baobab.http.static_page import CSS, HTML, SCRIPT, build_page_route


def approval_routes() -> list[Route]:
    return [
        build_page_route("/approvals/approval.css", "approval.css", CSS),
        build_page_route("/approvals/approval.js", "approval.js", SCRIPT),
        build_page_route("/approvals/signin.js", "signin.js", SCRIPT),
        build_page_route("/approvals/", "approval.html", HTML),
        build_page_route("/approvals/{approval_id}", "approval.html", HTML),
        Route("/approvals", _list, methods=["GET"], include_in_schema=False),
    ]


async def _list(_request: Request) -> Response:
    # A relative address also works below a proxy's prefix.
    return RedirectResponse("approvals/", status_code=307)
