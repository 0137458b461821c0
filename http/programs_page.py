"""The page on which a person sees the programs that act for them, and revokes access: static files whose script calls
the REST API.
"""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from baobab.http.static_page import HTML, SCRIPT, build_page_route


def program_routes() -> list[Route]:
    return [
        build_page_route("/programs/programs.js", "programs.js", SCRIPT),
        build_page_route("/programs/signin.js", "signin.js", SCRIPT),
        build_page_route("/programs/", "programs.html", HTML),
        Route("/programs", _with_slash, methods=["GET"], include_in_schema=False),
    ]


async def _with_slash(_request: Request) -> Response:
    # A relative address also works below a proxy's prefix.
    return RedirectResponse("programs/", status_code=307)
