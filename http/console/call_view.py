"""What a person reads of a call: the request above the proposal, texts as texts, and what else it changes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from baobab.http.console.compare import compare_words
from baobab.tools.core.escaping import escape_json

QUESTION, REMOTE, BOUND = "interrupt", "mcp_servers_call", "app_id"
_MOST_OF_REQUEST = 6
_LONG = 60
_ID = re.compile(r"[0-9a-fA-F-]{16,}|[a-z]+_[A-Za-z0-9_-]{10,}")
_DEED = re.compile(r"It would delete (\d+ (?:keys?|rows?|files?|documents?))\b")
_NOTHING: Any = object()
_UNITS = {"data": "row", "kv": "key", "files": "file", "rag": "document"}

Value = Mapping[str, Any]
"""One value: its `label` and its text `after`, what was there `before` (None if nothing), and `pieces`, the difference
by words (None where the text is read better alone). `is_text`: whether it is read as a text of its own. `is_closed`:
whether it is long and no text, so that it stands below a line that opens.
"""


def build_view(details: Mapping[str, Any], toolset: str = "") -> dict[str, Any]:
    """Returns what the page of a call shows. details: what `approvals_get` answers. toolset: of the tool."""
    approval, changes = details["approval"], details["changes"]
    arguments = pick_arguments(approval, details["arguments"] or {})
    one = changes[0] if changes is not None and len(changes) == 1 else None
    values = None if one is None else read_change(one)
    if values is None and not changes:
        values = [] if approval["tool"] == QUESTION else list(_list_leaves(arguments))
    shown_paths = [each["path"] for each in details["shown"]]
    values = _sort_values(values or [], shown_paths)
    return {
        "request": _read_request(details),
        "texts": [value for value in values if value["is_text"]],
        "facts": [value for value in values if not value["is_text"] and not _is_formal(value, changes)],
        "several": changes if changes is not None and len(changes) > 1 else [],
        "is_new": one is not None and one["before"] is None,
        "is_deleted": one is not None and one["after"] is None,
        # Where the tool can tell all that it would change, nothing else is changed.
        "knows_all": changes is not None and approval["effect"] != "external",
        "changes_nothing": changes == [] and approval["effect"] != "external",
        "deed": name_deed(details, toolset),
        "question_text": _write((approval["question"] or {}).get("reason")),
        "right": say_right(approval),
    }


def pick_arguments(approval: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that people need to decide: of a tool server's tool, its own."""
    if approval["tool"] == REMOTE:
        return dict(arguments.get("arguments", {}))
    return {name: value for name, value in arguments.items() if name != BOUND}


def read_change(change: Mapping[str, Any]) -> list[Value] | None:
    """Returns the values of one change, one for each column of a row; None where they are cut, and no JSON any more."""
    try:
        before, after = (_NOTHING if change[side] is None else json.loads(change[side]) for side in ("before", "after"))
    except ValueError:
        return None
    if not all(side is _NOTHING or isinstance(side, dict) for side in (before, after)):
        return [_compare(str(change["what"]), before, after)]
    before, after = ({} if side is _NOTHING else side for side in (before, after))
    names = [name for name in {**before, **after} if before.get(name, _NOTHING) != after.get(name, _NOTHING)]
    return [_compare(name, before.get(name, _NOTHING), after.get(name, _NOTHING)) for name in names]


def compare_values(label: str, before: Any, after: Any) -> Value:
    """Returns one value with what was there before. Both may be JSON of any kind."""
    return _compare(label, before, after)


def _compare(label: str, before: Any, after: Any) -> Value:
    old, new = _write(before), _write(after)
    is_text = any(_is_text(value) for value in (before, after))
    pieces = compare_words(old, new) if is_text and old is not None and new is not None else None
    is_closed = any(_is_structure(side) for side in (before, after))
    value = {"label": label, "before": old, "after": new, "pieces": pieces}
    return {**value, "is_text": is_text and not is_closed, "is_closed": is_closed}


def _write(value: Any) -> str | None:
    """Returns a value as text for people; None where there is nothing."""
    if value is _NOTHING or value is None:
        return None
    return value if isinstance(value, str) else escape_json(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and ("\n" in value.strip() or len(value) > _LONG or value.count(" ") > 3)


def _is_structure(value: Any) -> bool:
    """Returns whether a value is read as JSON only: an object, a list of them, or a long list."""
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value) or len(escape_json(value)) > _LONG
    return isinstance(value, dict)


def _list_leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[Value]:
    """Yields the values of arguments. Lists are one value, unless they are of objects."""
    if isinstance(tree, dict) and tree:
        for name, child in tree.items():
            yield from _list_leaves(child, (*path, name))
    elif isinstance(tree, list) and any(isinstance(item, dict) for item in tree):
        for number, item in enumerate(tree, start=1):
            yield _compare(f"{'.'.join(path)} {number}", _NOTHING, item)
    elif path and tree is not None:
        yield _compare(".".join(path), _NOTHING, tree)


def _sort_values(values: Sequence[Value], shown_paths: Sequence[str]) -> list[Value]:
    """Returns the values that the graph's author shows first before the others, and short ones before long ones."""

    def rank(value: Value) -> int:
        ends = [n for n, path in enumerate(shown_paths) if path.split(".")[-1] == str(value["label"]).split(".")[-1]]
        return ends[0] if ends else len(shown_paths)

    return sorted(values, key=rank)


def _read_request(details: Mapping[str, Any]) -> list[Value]:
    """Returns what was asked for: what the graph's author shows of it, or else the texts of the run's input."""
    chosen_values = [
        _compare(each["path"].split(".")[-1], _NOTHING, each["value"])
        for each in details["shown"]
        if not each["path"].startswith("arguments.")
    ]
    if chosen_values:
        return chosen_values
    run = details["approval"]["run"]
    leaves = list(_list_leaves(run["input"] or {})) if run is not None else []
    # What was handed on as it is stands below, as the proposal.
    proposed_texts = {leaf["after"] for leaf in _list_leaves(details["arguments"] or {})}
    texts = [leaf for leaf in leaves if leaf["after"] and not _is_id(leaf) and leaf["after"] not in proposed_texts]
    return texts[:_MOST_OF_REQUEST]


def _is_formal(value: Value, changes: Any) -> bool:
    """Returns whether an argument says nothing to a person: an id, or a confirmation."""
    return changes is None and (_is_id(value) or value["after"] in ("true", "false"))


def _is_id(leaf: Value) -> bool:
    label = str(leaf["label"]).split(".")[-1]
    return label == "id" or label.endswith("_id") or _ID.fullmatch(leaf["after"] or "") is not None


def name_deed(details: Mapping[str, Any], toolset: str) -> str | None:
    """Returns what a call deletes now, with the number, such as `Delete 303 keys`; None if it deletes nothing."""
    changes = details["changes"] or []
    count = sum(change["after"] is None and change["before"] is not None for change in changes)
    if count:
        unit = _UNITS.get(toolset, "thing")
        return f"Delete {count} {unit}{'' if count == 1 else 's'}"
    # The first words of a preview are the server's own.
    match = _DEED.match(details["preview"] or "")
    return None if match is None else f"Delete {match[1]}"


def say_right(approval: Mapping[str, Any]) -> str:
    """Says whose right the call uses."""
    asker = approval["asker"]
    name = (asker["account"] or "").rpartition(" (")[0] or asker["account"]
    if approval["run_as"] == "app":
        return "With the app's own right, lent to this call."
    match asker["kind"]:
        case "user":
            return f"With the right of the app's user {asker['name']}."
        case "visitor":
            return "With the right of a visitor of the app."
        case "key":
            key = f"the key {asker['name']}" if asker["name"] else "a key that is revoked"
            return f"With the right of {name}, through {key}."
    return f"With the right of {name}."
