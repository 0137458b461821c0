"""What a button says that approves a call, once trying the call has shown what it changes now."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from baobab.tools.core.call import Tool
from baobab.tools.core.guard.changes import Change
from baobab.tools.core.guard.titles import is_plain

_DEED = re.compile(r"It would delete (\d+ (?:keys?|rows?|files?|documents?))\b")
_UNITS = {"data": "row", "kv": "key", "files": "file", "rag": "document"}
_AT = {"Delete": "from", "Add": "to", "Change": "in"}
_MOST_OF_TABLE = 24


def name_deed(
    tool: Tool | None, effect: str, arguments: Mapping[str, Any], preview: str | None, changes: Sequence[Change] | None
) -> str | None:
    """Returns what a call changes now, with the number, such as `Delete 303 keys` or `Add 1 row to orders`. None where
    trying it does not tell: then its button says what the server or the graph's author says of it.
    """
    toolset = "" if tool is None else tool.toolset.name
    unit = _UNITS.get(toolset)
    if effect == "external" or not changes or unit is None:
        # The first words of a preview are the server's own.
        match = _DEED.match(preview or "")
        return None if match is None else f"Delete {match[1]}"
    counts = Counter(_find_verb(change) for change in changes)
    (first, count), *others = ((verb, counts[verb]) for verb in ("Delete", "Add", "Change") if counts[verb])
    words = [f"{first} {count} {unit}{'' if count == 1 else 's'}"]
    words += [f"{verb.lower()} {number}" for verb, number in others]
    table = str(arguments.get("table", ""))
    if toolset == "data" and not others and is_plain(table) and len(table) <= _MOST_OF_TABLE:
        words.append(f"{_AT[first]} {table}")
        return " ".join(words)
    return ", ".join(words)


def _find_verb(change: Change) -> str:
    if change["after"] is None:
        return "Delete"
    return "Add" if change["before"] is None else "Change"
