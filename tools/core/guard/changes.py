"""The changes that a call would make, one by one: each thing as it is and as it would be, as text for people."""

from typing import Any, Final

from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from baobab.tools.core.guard.escaping import escape_json

_MOST_CHARACTERS, _MOST_IN_ALL = 20_000, 400_000
NOTHING: Final = object()
"""Stands for a thing that does not exist before the change, or after it."""


class Change(TypedDict):
    """Texts are JSON; null where there is nothing. Long ones are cut, and say so."""

    what: str
    before: str | None
    after: str | None


def describe_change(what: str, before: Any, after: Any) -> Change:
    """Describes one change by its value before and after, which may be JSON as bytes, as stores keep it."""
    return {"what": escape_json(what)[1:-1], "before": _render(before), "after": _render(after)}


def _render(value: Any) -> str | None:
    if value is NOTHING:
        return None
    text = escape_json(from_json(value if isinstance(value, bytes) else to_json(value)), indent=2)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}\n… ({len(text)} characters)"


def bound_changes(changes: list[Change]) -> list[Change]:
    """Returns the changes with as much text as one answer can have; of the others, only their names and sizes."""
    room = _MOST_IN_ALL
    bounded_changes: list[Change] = []
    for change in changes:
        texts = [change["before"], change["after"]]
        room -= sum(len(text or "") for text in texts)
        if room < 0:
            before, after = (None if text is None else f"({len(text)} characters)" for text in texts)
            bounded_changes.append({"what": change["what"], "before": before, "after": after})
        else:
            bounded_changes.append(change)
    return bounded_changes
