"""/console/apps/{app}/people: search people and companies, read a profile, look up an address, erase a person."""

from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/people"
_TEMPLATE = "people.html"
_COUNTS = ("profiles", "lookups", "rows")
_NOTHING_FOUND = {"answer": None, "profile": None, "kind": "person", "words": "", "url": "", "following": ""}
_KINDS = {"person": "people_search_person", "company": "people_search_company"}


async def show_people(visit: Visit) -> Context:
    return await _read_page(visit)


async def _read_page(visit: Visit, **further: Any) -> Context:
    """Returns what the page always has, and what a form has just found."""
    app = await read_app(visit)
    has_erased = "rows" in visit.query
    return {
        "app": app,
        "title": "Look up people",
        "lookups": (await visit.call("people_email_lookups", app_id=app["id"]))["lookups"],
        "usage": (await visit.call("people_usage", app_id=app["id"]))["rows"],
        "erasure": {name: visit.query.get(name, "0") for name in _COUNTS} if has_erased else None,
        "is_queued": "queued" in visit.query,
        **_NOTHING_FOUND,
        **further,
    }


async def search(visit: Visit) -> Context:
    """Searches, and shows what was found. It is a form because each search costs credits."""
    kind = visit.form.get("kind", "person")
    words, token = visit.form.get("query", "").strip(), visit.form.get("token", "")
    arguments = {"nextToken": token} if token else {"query": words}
    answer = await visit.call(_KINDS.get(kind, _KINDS["person"]), app_id=visit.parts["app"], **arguments)
    following = (answer["data"]["nextPage"] or "").partition("next_token=")[2]
    return await _read_page(visit, answer=answer, kind=kind, words=words, following=following)


async def read_profile(visit: Visit) -> Context:
    url = visit.form.get("url", "").strip()
    answer = await visit.call("people_profile", app_id=visit.parts["app"], networkProfileUrl=url)
    return await _read_page(visit, profile=answer, url=url)


async def queue_email(visit: Visit) -> str:
    url = visit.form.get("url", "").strip()
    await visit.call("people_email_queue", app_id=visit.parts["app"], networkProfileUrl=url)
    return f"{PATH.format(**visit.parts)}?queued=1#lookups"


async def erase(visit: Visit) -> str:
    url = visit.form.get("url", "").strip()
    erasure = await visit.call("people_erase", app_id=visit.parts["app"], networkProfileUrl=url)
    counts = f"profiles={erasure['profiles_deleted']}&lookups={erasure['lookups_deleted']}"
    return f"{PATH.format(**visit.parts)}?{counts}&rows={erasure['usage_rows_cleared']}#erase"


PAGES = (
    Page(
        PATH,
        "People",
        _TEMPLATE,
        show_people,
        tab="Look up people",
        group="Data",
        icon="search",
        rank=90,
        tool="people_search_person",
    ),
)
FORMS = (
    Form(PATH + "/search", search, _TEMPLATE),
    Form(PATH + "/profile", read_profile, _TEMPLATE),
    Form(PATH + "/email", queue_email),
    Form(PATH + "/erase", erase),
)
