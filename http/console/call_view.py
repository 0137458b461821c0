"""What a person reads of a call: the request above the proposal, texts as texts, and what else it changes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from baobab.http.console.compare import compare_words
from baobab.http.console.graph_sentences import Sentence, is_graph, tell_graph_change
from baobab.tools.approvals.inbox.holding import HOLD
from baobab.tools.core.guard.escaping import escape_json

QUESTION, REMOTE, BOUND = "interrupt", "mcp_servers_call", "app_id"
_MOST_OF_REQUEST = 6
_LONG = 60
_ID = re.compile(r"[0-9a-fA-F-]{16,}|[a-z]+_[A-Za-z0-9_-]{10,}")
_SAID = re.compile(r"(\w+): (.*)", re.ASCII)
_NOTHING: Any = object()

Value = Mapping[str, Any]
"""One value: its `label` and its text `after`, what was there `before` (None if nothing), and `pieces`, the difference
by words (None where the text is read better alone). `is_text`: whether it is read as a text of its own. `is_closed`:
whether it is long and no text, so that it stands below a line that opens.
"""


def build_view(details: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the page of a call shows. details: what `approvals_get` answers. toolset: of the tool."""
    approval, changes = details["approval"], details["changes"]
    # What a call was made with is erased when it ends; what was said of it stays.
    arguments = pick_arguments(approval, details["arguments"] or _recall_arguments(approval["summary"]))
    sentences, others = _tell_graphs(changes or [])
    one = others[0] if changes is not None and len(others) == 1 else None
    values = None if one is None else read_change(one)
    if values is None and not changes:
        values = [] if approval["tool"] == QUESTION else list(_list_leaves(arguments))
    shown_paths = [each["path"] for each in details["shown"]]
    values = _sort_values(values or [], shown_paths)
    if details["arguments"] is None:
        values = [{**value, "label": str(value["label"]).rpartition(".")[2]} for value in values]
    return {
        "request": _read_request(details, arguments),
        "texts": [value for value in values if value["is_text"]],
        "facts": [value for value in values if not value["is_text"] and not _is_formal(value, changes)],
        "several": others if len(others) > 1 else [],
        "sentences": sentences,
        "is_new": one is not None and one["before"] is None,
        "is_deleted": one is not None and one["after"] is None,
        # Where the tool can tell all that it would change, nothing else is changed.
        "knows_all": changes is not None and approval["effect"] != "external",
        "changes_nothing": changes == [] and approval["effect"] != "external",
        "question_text": _write((approval["question"] or {}).get("reason")),
        "right": say_right(approval),
    }


def _recall_arguments(summary: str) -> dict[str, Any]:
    """Returns the arguments that a summary names, as far as it has them: long ones are cut, and texts then."""
    values: dict[str, Any] = {}
    for line in summary.split("\n")[1:]:
        match = _SAID.fullmatch(line)
        if match is None or match[2][:1] not in '{["-0123456789tfn':
            continue
        try:
            values[match[1]] = json.loads(match[2])
        except ValueError:
            values[match[1]] = match[2]
    return values


def _tell_graphs(changes: Sequence[Mapping[str, Any]]) -> tuple[list[Sentence], list[Mapping[str, Any]]]:
    """Returns what changes of graphs change, in sentences, and the other changes."""
    sentences: list[Sentence] = []
    others: list[Mapping[str, Any]] = []
    for change in changes:
        try:
            before, after = (json.loads(change[side] or "null") for side in ("before", "after"))
        except ValueError:
            # A long value is cut, and no JSON any more.
            before = after = None
        if is_graph(before) and is_graph(after):
            sentences += tell_graph_change(before, after)
        else:
            others.append(change)
    return sentences, others


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


def _read_request(details: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[Value]:
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
    proposed_texts = {leaf["after"] for leaf in _list_leaves(arguments)}
    texts = [leaf for leaf in leaves if leaf["after"] and not _is_id(leaf) and leaf["after"] not in proposed_texts]
    return texts[:_MOST_OF_REQUEST]


def _is_formal(value: Value, changes: Any) -> bool:
    """Returns whether an argument says nothing to a person: an id, or a confirmation."""
    return changes is None and (_is_id(value) or value["after"] in ("true", "false"))


def _is_id(leaf: Value) -> bool:
    label = str(leaf["label"]).split(".")[-1]
    return label == "id" or label.endswith("_id") or _ID.fullmatch(leaf["after"] or "") is not None


def say_how_final(undo: str, undo_days: int | None, *, is_final: bool, is_due: bool, may_undo: bool) -> str:
    """Says whether a decision can be taken back, until when, and whether what it does can be undone afterwards.

    undo, undo_days: as an approval has them; nothing is said of what is not known. is_final: whether an approval is
    confirmed, and counts at once. is_due: whether it counts at once because the call is about to expire. may_undo:
    whether the person may undo writes themselves.
    """
    days = f"undone {'' if may_undo else 'by the team '}for {undo_days} days"
    if is_final:
        words = {"possible": f"Can be {days}.", "never": "Cannot be taken back."}.get(undo, "Counts at once.")
        return f"{words} You are asked once more."
    if is_due:
        at_once = {"possible": f"Counts at once. Can be {days}.", "never": "Counts at once, and cannot be taken back."}
        return at_once.get(undo, "Counts at once.")
    later = {"possible": f", {days}", "never": ", not later"}.get(undo, "")
    return f"Can be taken back for {HOLD // timedelta(seconds=1)} s{later}."


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
            key = f"the API key {asker['name']}" if asker["name"] else "an API key that is revoked"
            return f"With the right of {name}, through {key}."
    return f"With the right of {name}."
