"""/console: the items that wait for this person, and the latest decisions."""

from contextlib import suppress
from typing import Any

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.rendering import say_ago, say_duration
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BaobabError, Forbidden
from baobab.tools.core.escaping import escape_json

_SHOWN, _DECIDED, _MOST = 50, 10, 160


async def show_inbox(visit: Visit) -> Context:
    rows: list[dict[str, Any]] = []
    decided_rows: list[dict[str, Any]] = []
    following: dict[str, str] = {}
    organisation_id = visit.query.get("of")
    organisations = await visit.list_organisations()
    for organisation in organisations:
        if organisation_id is not None and organisation["id"] != organisation_id:
            continue
        filters = {"organisation_id": organisation["id"], "status": "pending", "limit": _SHOWN}
        if organisation_id is not None and "after" in visit.query:
            filters["cursor"] = visit.query["after"]
        page = await visit.call("approvals_list", **filters)
        rows += [_describe(visit, row, organisation) for row in page["approvals"]]
        if page["next_cursor"]:
            following[organisation["id"]] = page["next_cursor"]
        if "after" not in visit.query:
            latest_approvals = await visit.call("approvals_list", organisation["id"], limit=_DECIDED)
            decided_rows += [row for row in latest_approvals["approvals"] if row["status"] != "pending"]
    action_rows = [
        act
        for organisation in organisations
        if organisation_id is None
        for act in await _read_substrate(visit, organisation)
    ]
    decided_rows.sort(key=lambda row: row["decided_at"] or row["expires_at"], reverse=True)
    return {
        "title": "Inbox",
        "waiting": sorted(rows, key=lambda row: row["expires_at"]),
        "acts": action_rows,
        "floods": _find_floods(rows),
        "decided": decided_rows[:_DECIDED],
        "following": following,
        "is_first": "after" not in visit.query,
        "address": visit.registry.services.options.base_url,
    }


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


def _describe(visit: Visit, row: dict[str, Any], organisation: Any) -> dict[str, Any]:
    time_left = say_duration((row["expires_at"] - visit.now).total_seconds())
    ago = say_ago((visit.now - row["created_at"]).total_seconds())
    return {**row, "left": time_left, "ago": ago, "place": row["app_name"] or organisation["name"]}


def _find_floods(rows: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Returns the ids of waiting calls by proposer, for proposers with more than one. An agent's runs count as one
    proposer.
    """
    by_asker: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        of_run = row["proposer"].startswith("run:")
        by_asker.setdefault(("" if of_run else row["proposer"], row["asked_by"]), []).append(row["id"])
    return [(asker, ids) for (_, asker), ids in by_asker.items() if len(ids) > 1]


async def deny_all(visit: Visit) -> str:
    """Denies the calls that the page has shown, but none that have come since."""
    for approval_id in visit.form.get("ids", "").split()[:_SHOWN]:
        # Some may have been decided meanwhile.
        with suppress(BaobabError):
            await visit.call("approvals_reject", approval_id=approval_id)
    return ""


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
FORMS = (Form("/approvals/deny-all", deny_all),)
