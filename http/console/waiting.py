"""What waits for a person in the inbox: the calls in their groups, which is next, and what is held or put off."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode

from baobab.http.console.rendering import say_ago, say_duration
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import Forbidden, RateLimited

_PAGE = 500
FILTERS = ("kind", "app", "agent")
KINDS = {"change": "Changes", "question": "Questions", "outside": "Leaves the house", "delete": "Deletes"}
_WORDS = {"key": "API key", "user": "User of the app"}
"""What stands before the name of whoever asks; before that of a person, nothing."""
_SHORT = timedelta(hours=2)
"""A list says how much time is left only where it is less than this."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The calls that wait for a person's decision, in the order in which the inbox shows them."""

    groups: Sequence[Mapping[str, Any]]
    """Calls of one agent or key and of one kind. What expires first is on top."""
    others: Sequence[Mapping[str, Any]]
    """Calls that the person sees, and other people decide about."""
    snoozed: Sequence[Mapping[str, Any]]
    chosen: Mapping[str, str]
    """The filters of the list."""
    choices: Mapping[str, Mapping[str, tuple[str, int]]]
    """By filter, what can be chosen: its name, and how many calls there are."""
    total: int
    """How many calls wait, whatever the filters say."""
    state: Mapping[str, Any]

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        return [call for group in self.groups for call in group["calls"]]

    @property
    def query(self) -> str:
        """The filters as they stand in an address."""
        return build_query(self.chosen)

    def build_address(self, changes: Mapping[str, str]) -> str:
        """Returns the address of the list below /console, with its filters and what differs from them."""
        query = build_query({**self.chosen, **changes})
        return f"?{query}" if query else ""

    def find_place(self, approval_id: str) -> int | None:
        """Returns the place of a call in the list, from 0; None if it is not in it."""
        return next((n for n, call in enumerate(self.calls) if call["id"] == approval_id), None)

    def find_next(self, approval_id: str) -> str | None:
        """Returns the id of the call that comes after one in the list: from its end, the first; None if it is alone."""
        ids = [call["id"] for call in self.calls]
        if approval_id not in ids:
            return ids[0] if ids else None
        following = [*ids[ids.index(approval_id) + 1 :], *ids[: ids.index(approval_id)]]
        return following[0] if following else None


def build_query(chosen: Mapping[str, str]) -> str:
    """Writes filters as they stand in an address."""
    return urlencode({name: value for name, value in chosen.items() if value})


def read_filters(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query.get(name, "")[:200] for name in FILTERS}


def parse_filters(text: str) -> dict[str, str]:
    """Returns the filters that a form names as they stand in an address."""
    return read_filters(dict(parse_qsl(text[:1000])))


async def load_waiting(visit: Visit, chosen: Mapping[str, str]) -> Waiting:
    """Loads all calls that wait in the organisations of the person, once for each visit."""
    key = f"waiting?{build_query(chosen)}"
    if key not in visit.memory:
        visit.memory[key] = await _read_waiting(visit, chosen)
    all_that_waits: Waiting = visit.memory[key]
    return all_that_waits


async def load_places(visit: Visit, chosen: Mapping[str, str]) -> Waiting:
    """Loads the same in brief, without what the calls say: to find the next one, and to count them."""
    key = f"waiting?{build_query(chosen)}"
    if key not in visit.memory:
        places: list[dict[str, Any]] = []
        for organisation in await visit.list_organisations():
            calls = (await visit.call("approvals_waiting", organisation["id"]))["calls"]
            places += [{**row, "place": organisation["name"], **_find_keys(row, row["by"])} for row in calls]
        visit.memory[key] = _arrange(places, chosen, await read_state(visit))
    all_that_waits: Waiting = visit.memory[key]
    return all_that_waits


async def count_waiting(visit: Visit) -> int | None:
    """Returns how many calls wait for the person; None where the session's key does not tell."""
    try:
        return (await load_places(visit, read_filters({}))).total
    except (Forbidden, RateLimited):
        return None


async def _read_waiting(visit: Visit, chosen: Mapping[str, str]) -> Waiting:
    state = await read_state(visit)
    rows: list[dict[str, Any]] = []
    for organisation in await visit.list_organisations():
        filters: dict[str, Any] = {"status": "pending", "limit": _PAGE}
        while True:
            page = await visit.call("approvals_list", organisation["id"], **filters)
            rows += [_describe(visit, row, organisation) for row in page["approvals"]]
            if page["next_cursor"] is None:
                break
            filters["cursor"] = page["next_cursor"]
    return _arrange([row for row in rows if row["may_decide"]], chosen, state, rows)


def _arrange(
    mine: Sequence[Mapping[str, Any]],
    chosen: Mapping[str, str],
    state: Mapping[str, Any],
    all_rows: Sequence[Mapping[str, Any]] = (),
) -> Waiting:
    """Returns the calls in the order of the inbox. mine: those that the person may decide about, of all."""
    mine = [row for row in mine if row["id"] not in state["open_ids"]]
    later_calls = [{**row, "until": state["snoozed"][row["id"]]} for row in mine if row["id"] in state["snoozed"]]
    waiting = [row for row in mine if row["id"] not in state["snoozed"]]
    listed_calls = [
        row for row in waiting if all(not value or row[f"{name}_key"] == value for name, value in chosen.items())
    ]
    return Waiting(
        _group(listed_calls),
        sorted((row for row in all_rows if not row["may_decide"]), key=lambda row: row["expires_at"]),
        sorted(later_calls, key=lambda row: row["until"]),
        chosen,
        {name: _count(waiting, name) for name in FILTERS},
        len(waiting),
        state,
    )


def _describe(visit: Visit, row: dict[str, Any], organisation: Any) -> dict[str, Any]:
    left = row["expires_at"] - visit.now
    asker = row["asker"]
    by = row["agent"] or asker["name"] or asker["account"] or "a visitor"
    return {
        **row,
        **_find_keys({**row, "asker_kind": asker["kind"]}, by),
        "left": say_duration(left.total_seconds()) if left < _SHORT else None,
        "ago": say_ago((visit.now - row["created_at"]).total_seconds()),
        "place": row["app_name"] or organisation["name"],
    }


def _find_keys(row: Mapping[str, Any], by: str) -> dict[str, Any]:
    """Returns by what a call is grouped and filtered, in which `by` names who asks."""
    kind, app_id = find_kind(row), row["app_id"] or ""
    return {
        "by": by,
        "by_program": row["agent"] is not None or row["asker_kind"] == "key",
        "by_word": "Agent" if row["agent"] else _WORDS.get(row["asker_kind"], ""),
        "kind_key": kind,
        "kind_name": KINDS[kind],
        "app_key": app_id,
        "agent_key": f"{app_id}:{by}",
        "group_key": f"{app_id}:{by}:{kind}",
    }


def find_kind(row: Mapping[str, Any]) -> str:
    """Returns the kind of a waiting call, by which the inbox groups and filters."""
    if row["tool"] == "interrupt":
        return "question"
    return {"destructive": "delete", "external": "outside"}.get(row["effect"], "change")


def find_likeness(row: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Returns what is equal for calls that may be approved together: the agent, the node and the tool.

    None for those that are decided one by one: what leaves the house, deletes, uses the app's right, needs several
    people, or comes from a run that has read outside text.
    """
    several = isinstance(row["approvers"], dict) and "persons" in row["approvers"]
    if row["agent"] is None or row["node"] is None or row["run_as"] is not None or row["tainted"] or several:
        return None
    if find_kind(row) != "change":
        return None
    return row["app_id"], row["agent"], row["node"], row["tool"]


def find_alike(calls: Sequence[Mapping[str, Any]], call: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the waiting calls that may be approved together with one, that one among them."""
    likeness = find_likeness(call)
    return [] if likeness is None else [each for each in calls if find_likeness(each) == likeness]


def _group(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["expires_at"], row["created_at"], row["id"])):
        first = {
            "key": row["group_key"],
            "by": row["by"],
            "is_program": row["by_program"],
            "word": row["by_word"],
            "kind": row["kind_key"],
        }
        groups.setdefault(row["group_key"], {**first, "place": row["place"], "calls": []})["calls"].append(row)
    for group in groups.values():
        counts = Counter(find_likeness(row) for row in group["calls"])
        alike = (row["id"] for row in group["calls"] if (key := find_likeness(row)) is not None and counts[key] > 1)
        group["alike_id"] = next(alike, None)
    # In the order of their first calls, and so of what expires first.
    return list(groups.values())


def _count(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, tuple[str, int]]:
    label = {"kind": "kind_name", "app": "place", "agent": "by"}[name]
    counts: dict[str, tuple[str, int]] = {}
    places: dict[str, str] = {}
    for row in rows:
        key = row[f"{name}_key"]
        if key:
            counts[key] = (row[label], counts.get(key, ("", 0))[1] + 1)
            places[key] = row["place"]
    namesakes = Counter(words for words, _ in counts.values())
    return {
        key: (f"{words} ({places[key]})" if namesakes[words] > 1 and places[key] != words else words, number)
        for key, (words, number) in counts.items()
    }


async def read_state(visit: Visit) -> Mapping[str, Any]:
    """Returns what this person has done with waiting calls: `held`, which can be taken back for `seconds` more; `made`,
    the decisions of the last hour; `ended`, those that did not count after all; and `snoozed`, by the ids of calls.
    """
    state = await visit.call("approvals_inbox_state")
    held_decisions = [
        {**each, "seconds": _count_seconds(visit.now, each["due_at"])}
        for each in state["held"]
        if each["state"] == "held" and each["due_at"] > visit.now
    ]
    return {
        "held": held_decisions,
        "made": [each for each in state["held"] if each["state"] in ("held", "due", "counted")],
        "open_ids": {each["approval_id"] for each in state["held"] if each["state"] in ("held", "due")},
        "ended": [each for each in state["held"] if each["state"] in ("dropped", "refused")],
        "snoozed": {each["approval_id"]: each["until"] for each in state["snoozed"]},
    }


def _count_seconds(now: datetime, due_at: datetime) -> int:
    """Returns how many seconds are left, rounded up."""
    return -((now - due_at) // timedelta(seconds=1))
