"""/console/programs: the programs that have access to this person's account through OAuth."""

from typing import Any

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

_ASKS = {
    "none": "without asking",
    "destructive": "asking a person before it destroys something",
    "external": "asking a person before anything leaves this server or is destroyed",
    "write": "asking a person before every change",
}


async def show_programs(visit: Visit) -> Context:
    by_key = visit.session.caller.key_id is not None
    page: dict[str, Any] = {"programs": []} if by_key else await visit.call("oauth_programs_list")
    return {**page, "by_key": by_key, "asks": _ASKS}


async def revoke(visit: Visit) -> str:
    await visit.call("oauth_programs_revoke", program_id=visit.parts["id"])
    return "/programs"


PAGES = (
    Page(
        "/programs",
        "Connected programs",
        "programs.html",
        show_programs,
        menu="Programs",
        tool="oauth_programs_list",
        group="Organisation",
        icon="plug",
        rank=40,
    ),
)
FORMS = (Form("/programs/{id}/revoke", revoke),)
