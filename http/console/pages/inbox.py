"""/console: the calls that wait for this person, with the one that is open beside them, and what is put off."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from baobab.http.console.deciding import take_back
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.pages.approval import show_approval
from baobab.http.console.visit import Visit
from baobab.http.console.waiting import KINDS, build_query, load_waiting, parse_filters, read_filters
from baobab.tools.core.errors import BadRequest, BaobabError, Forbidden
from baobab.tools.core.guard.escaping import escape_json

_SHOWN, _FEW, _MOST = 50, 5, 160
"""The most calls of a group that the list shows when the group is opened_id, and before."""


async def show_inbox(visit: Visit) -> Context:
    waiting = await load_waiting(visit, read_filters(visit.query))
    opened_id = visit.query.get("open", "")[:200]
    action_rows = [
        act for organisation in await visit.list_organisations() for act in await _read_substrate(visit, organisation)
    ]
    is_listed = waiting.find_place(opened_id) is not None
    back = [each["until"] for each in waiting.snoozed]
    return {
        "title": "Inbox",
        "waiting": waiting,
        "waiting_count": waiting.total,
        "acts": action_rows,
        "kinds": KINDS,
        "opened": opened_id,
        "few": _FEW,
        "most": _SHOWN,
        "whole": visit.query.get("whole", ""),
        "call": await _render_call(visit, opened_id) if is_listed else None,
        "taken_back": "taken-back" in visit.query,
        "too_late": "too-late" in visit.query,
        "has_channels": await _has_channels(visit),
        "comes_back_in": max(1, int((min(back) - visit.now).total_seconds()) + 1) if back else None,
    }


async def _render_call(visit: Visit, approval_id: str) -> Markup:
    """Renders the page of a call without what stands around it."""
    values = await show_approval(replace(visit, parts={"id": approval_id}))
    return Markup(visit.render("approval.html", {**values, "layout": "pane.html"}))  # noqa: S704 (our own template)


async def _has_channels(visit: Visit) -> bool:
    """Returns whether this person is told of what waits somewhere else than here."""
    try:
        return bool((await visit.call("notices_get"))["channels"])
    except Forbidden:
        # A key with limits does not see them, and could not add one.
        return True


async def _read_substrate(visit: Visit, organisation: Any) -> list[dict[str, Any]]:
    """Returns what waits in an organisation's substrate; nothing if the session's key does not give access to it."""
    # Keys of apps do not open it, and whoever has none yet has nothing there.
    with suppress(Forbidden):
        page = await visit.call("substrate_actions", organisation["id"], status="proposed", limit=_SHOWN)
        organisation_fields = {"of": organisation["id"], "place": organisation["name"]}
        return [{**row, **organisation_fields, "says": _cut(escape_json(row["payload"]))} for row in page["actions"]]
    return []


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


async def deny_all(visit: Visit) -> str:
    """Denies the calls that the page has shown, but none that have come since. Each denial is held like one alone."""
    for approval_id in visit.form.get("ids", "").split()[:_SHOWN]:
        # Some may have been decided meanwhile.
        with suppress(BaobabError):
            await visit.call("approvals_hold", approval_id=approval_id, decision="reject")
    return _build_path(visit)


async def snooze(visit: Visit) -> str:
    minutes = visit.form.get("minutes", "")
    if not minutes.isdecimal() or len(minutes) > 4:
        raise BadRequest("The minutes must be a number.")
    ids = visit.form.get("ids", "").split()[:_SHOWN]
    await visit.call("approvals_snooze", approval_ids=ids, minutes=int(minutes))
    return _build_path(visit)


async def use_marked(visit: Visit) -> str:
    """Does with the marked calls what the pressed button says: shows them together, or puts them off."""
    ids = [name.removeprefix("mark.") for name in visit.form if name.startswith("mark.")][:_SHOWN]
    if not ids:
        return _build_path(visit)
    if "minutes" in visit.form:
        return await snooze(replace(visit, form={**visit.form, "ids": " ".join(ids)}))
    return f"/approvals/{ids[0]}/alike?ids={','.join(ids)}"


def _build_path(visit: Visit) -> str:
    """Returns the path of the list with the filters that it had."""
    query = build_query(parse_filters(visit.came_from.partition("?")[2]))
    return f"?{query}" if query else ""


PAGES = (
    Page(
        "",
        "Inbox",
        "inbox.html",
        show_inbox,
        menu="Inbox",
        icon="inbox",
        rank=0,
        on_phone=True,
        for_approvers=True,
        follows_inbox=True,
    ),
)
FORMS = (
    Form("/approvals/deny-all", deny_all),
    Form("/approvals/take-back", take_back),
    Form("/approvals/snooze", snooze),
    Form("/approvals/marked", use_marked),
)
