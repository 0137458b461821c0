"""What a run has read before it proposes a call, and whether a person must be warned of it.

A warning is due only if the run has read text from outside, and the call has a value that stands only in that text, or
it pays, deletes, gives rights, or writes to somebody else than the authors of that text.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.tables import events, runs
from baobab.storage.sql.database import Database
from baobab.tools.core.call import Tool

FindName = Callable[[str], Awaitable[str | None]]
"""Returns the name of a user of the app."""
_MOST_RUNS, _MOST_CALLS = 12, 200
_MOST_READ = 8
_MOST_VALUES = 3
_LONGEST_VALUE = 200
_FEWEST_DIGITS, _LEAST_NUMBER = 4, 100
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:https?://|www\.)[^\s<>\"')\]]+")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_OPERATOR = re.compile(r"(?:eq|is|in|neq)\.")
_PAYING = re.compile(r"amount|price|total|refund|payment|cents|charge", re.IGNORECASE)


@dataclass(slots=True)
class Reading:
    """What a run has read: its sources, and their texts, by whether they are the app's own."""

    sources: list[dict[str, Any]] = field(default_factory=list)
    own_texts: list[str] = field(default_factory=list)
    outside_texts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def outside_sources(self) -> list[dict[str, Any]]:
        return [source for source in self.sources if not source["own"]]


async def describe_reading(
    database: Database, run: Any, tool: Tool, arguments: Mapping[str, Any], find_name: FindName
) -> dict[str, Any] | None:
    """Returns what an approval keeps of the reading: `read`, the sources, and `warning`, or null where none is due.

    None where the run has read nothing. arguments: of the call, without secrets.
    """
    reading = await _load_reading(database, run)
    if not reading.sources:
        return None
    names: dict[str, str | None] = {}
    for source in reading.sources:
        user_id = source.get("user")
        if user_id is not None and user_id not in names and len(names) < _MOST_READ:
            names[user_id] = await find_name(user_id)
        if user_id is not None and names.get(user_id):
            source["user_name"] = names[user_id]
    ordered_sources = sorted(reading.sources, key=lambda source: bool(source["own"]))
    return {
        "read": ordered_sources[:_MOST_READ],
        "more": max(0, len(ordered_sources) - _MOST_READ),
        "warning": _find_warning(reading, tool, arguments),
    }


async def _load_reading(database: Database, run: Any) -> Reading:
    """Reads the events of a run, of those above it and of those that it has delegated to."""
    reading = Reading()
    brings_outside_text = run.caller.get("brings_outside_text", False)
    of_stranger = run.caller_kind in ("end_user", "anonymous") or brings_outside_text
    reading.own_texts.append(json.dumps(run.graph_spec, ensure_ascii=False))
    input_text = json.dumps(run.input, ensure_ascii=False)
    if of_stranger:
        source = {"kind": "start" if brings_outside_text else "input", "own": False}
        if run.caller_user_id is not None:
            source["user"] = run.caller_user_id
        reading.sources.append(source)
        reading.outside_texts.append((input_text, source))
    else:
        reading.own_texts.append(input_text)
    async with database.reading() as connection:
        waiting_ids, seen_ids = [run.id], set[str]()
        parent_id = run.parent_run_id
        while parent_id is not None and len(waiting_ids) < _MOST_RUNS:
            waiting_ids.append(parent_id)
            query = select(runs.c.parent_run_id).where(runs.c.app_id == run.app_id, runs.c.id == parent_id)
            parent_id = (await connection.execute(query)).scalar()
        while waiting_ids and len(seen_ids) < _MOST_RUNS:
            run_id = waiting_ids.pop(0)
            if run_id in seen_ids:
                continue
            seen_ids.add(run_id)
            conditions = (events.c.app_id == run.app_id, events.c.run_id == run_id, events.c.type == "tool_call_end")
            query = select(events.c.payload).where(*conditions).order_by(events.c.seq.desc()).limit(_MOST_CALLS)
            for (payload,) in (await connection.execute(query)).all():
                waiting_ids += _add_call(reading, payload)
    if run.tainted and not reading.outside_sources:
        # What else taints a run is what it remembers of earlier ones.
        reading.sources.append({"kind": "conversation", "own": False})
    return reading


def _add_call(reading: Reading, payload: Mapping[str, Any]) -> list[str]:
    """Adds what one call has read. Returns the run that the call has delegated to, if it has."""
    if payload["tool_source"] == "agent":
        return [payload["run_id"]]
    tainted, read = bool(payload.get("tainted")), list(payload.get("read", ()))
    if tainted and not read:
        read = [{"kind": "tool", "name": payload["tool_name"], "own": False}]
        if "server" in payload:
            read[0]["place"] = payload["server"]
    for source in read:
        if source not in reading.sources:
            reading.sources.append(dict(source))
    result = payload.get("result")
    if result is not None:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        if tainted:
            first_outside = next((source for source in read if not source.get("own")), read[0])
            for part, source in _split_by_source(result, text, read, first_outside):
                if source.get("own"):
                    reading.own_texts.append(part)
                else:
                    reading.outside_texts.append((part, source))
        else:
            reading.own_texts.append(text)
    return []


def _split_by_source(
    result: Any, text: str, read: Sequence[dict[str, Any]], fallback: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the parts of a result with whose text each is, where it is a list with one item for each source."""
    items = result.get("chunks") if isinstance(result, dict) else result
    by_key = {source["key"]: source for source in read if "key" in source}
    if not isinstance(items, list) or not by_key:
        yield text, fallback
        return
    for item in items:
        keys = [str(value) for value in item.values()] if isinstance(item, dict) else []
        source = next((by_key[key] for key in keys if key in by_key), fallback)
        yield json.dumps(item, ensure_ascii=False), source


def _find_warning(reading: Reading, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns why a person is warned, with the values that only text from outside has; None where nothing is due."""
    outside = reading.outside_sources
    if not outside or tool.effect == "read":
        return None
    leaves = list(_list_leaves(arguments))
    if values := _find_foreign_values(reading, leaves):
        return {"cause": "value", "values": values[:_MOST_VALUES], "source": values[0]["source"]}
    amounts = [path for path, value in leaves if isinstance(value, int | float) and _PAYING.search(path)]
    gives_rights = tool.grants or any(
        widens(arguments[name]) for name, widens in tool.widens.items() if name in arguments
    )
    target, authors = _find_target(reading, arguments), {each.get("user") for each in outside} - {None}
    writes_to_others = target is not None and bool(authors) and target.get("user") not in {None, *authors}
    causes = {
        "pays": tool.effect == "external" and bool(amounts),
        "deletes": tool.effect == "destructive",
        "rights": gives_rights,
        "other_person": writes_to_others,
    }
    cause = next((cause for cause, is_given in causes.items() if is_given), None)
    if cause is None:
        return None
    return {"cause": cause, "values": [], "source": outside[0]} | ({"target": target} if writes_to_others else {})


def _find_target(reading: Reading, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the row that a call writes, if the run has read it."""
    key = arguments.get("row_id")
    return next(
        (
            source
            for source in reading.sources
            if source["kind"] == "row" and source.get("place") == arguments.get("table") and source.get("key") == key
        ),
        None,
    )


def _find_foreign_values(reading: Reading, leaves: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Returns the values of a call that stand in text from outside and nowhere else."""
    keys = {str(source["key"]) for source in reading.sources if source.get("key")}
    found_values: list[dict[str, Any]] = []
    for path, leaf in leaves:
        for value in _list_telling(leaf):
            if (
                value in keys
                or _OPERATOR.sub("", value) in keys
                or any(_has(text, value) for text in reading.own_texts)
            ):
                continue
            source = next((source for text, source in reading.outside_texts if _has(text, value)), None)
            if source is not None:
                found_values.append({"argument": path, "value": value[:_LONGEST_VALUE], "source": source})
    return found_values


def _list_leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and depth < 8:
        for name, part in value.items():
            yield from _list_leaves(part, f"{path}.{name}" if path else str(name), depth + 1)
    elif isinstance(value, list) and depth < 8:
        for part in value[:100]:
            yield from _list_leaves(part, path, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield path, value


def _list_telling(leaf: Any) -> Iterator[str]:
    """Yields what may say where something goes or how much: addresses, links, numbers of accounts, and amounts.

    In a longer text only addresses and links, because an answer repeats much of what it answers.
    """
    if isinstance(leaf, int | float):
        if abs(leaf) >= _LEAST_NUMBER:
            yield f"{leaf:g}" if isinstance(leaf, float) and leaf < 10**6 else str(leaf)
        return
    addresses = _ADDRESS.findall(leaf)
    yield from (address.rstrip(".,;:!?") for address in addresses)
    is_short = len(leaf) <= _LONGEST_VALUE and "\n" not in leaf and len(leaf.split()) <= 6
    if is_short and not addresses and not _UUID.search(leaf) and sum(map(str.isdigit, leaf)) >= _FEWEST_DIGITS:
        yield leaf.strip()


def _has(text: str, value: str) -> bool:
    """Returns whether a text holds a value, however it is spaced; a number, as a number of its own."""
    if _NUMBER.fullmatch(value):
        number_of_value = _read_number(value)
        return any(_read_number(number) == number_of_value for number in _NUMBER.findall(text))
    return _squeeze(value) in _squeeze(text)


def _read_number(text: str) -> float:
    whole, point, cents = text.replace(",", ".").rpartition(".")
    if point and len(cents) <= 2:
        return float(f"{whole.replace('.', '') or 0}.{cents or 0}")
    return float(text.replace(",", "").replace(".", ""))


def _squeeze(text: str) -> str:
    return re.sub(r"[^\w@:/.]", "", text).casefold()
