"""Reads the header Accept, with which clients of PostgREST say in which form they want rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from baobab.tools.data.errors import MediaTypeRefused

_PART = re.compile(r'(?:"[^"]*"|[^,"])+')
_PARAMETER = re.compile(r';\s*([a-z]+)\s*=\s*(?:"([^"]*)"|([^;,]*))')
_Kind = Literal["rows", "object", "csv", "plan", "plan_text"]
_KINDS: Mapping[str, _Kind] = {
    "object": "object",
    "object+json": "object",
    "array": "rows",
    "array+json": "rows",
    "text/csv": "csv",
    "plan": "plan_text",
    "plan+text": "plan_text",
    "plan+json": "plan",
}
_REFUSED = ("application/geo+json", "application/vnd.pgrst.")
"""Types that clients ask for to get something else than the rows as JSON."""
_PLAN_OPTIONS = ("analyze", "verbose", "settings", "buffers")


@dataclass(frozen=True, slots=True)
class MediaRequest:
    """The form of an answer. strips_nulls: whether keys without a value are left out. plan_options: of a plan of the
    database, what it should contain beside the steps.
    """

    kind: _Kind = "rows"
    strips_nulls: bool = False
    plan_options: tuple[str, ...] = ()

    @property
    def is_plan(self) -> bool:
        return self.kind in ("plan", "plan_text")


_ROWS = MediaRequest()


def read_media_type(text: str) -> MediaRequest:
    """Reads the header. Raises MediaTypeRefused if it accepts nothing but a form that is not available; types of
    which nobody expects anything particular are answered with JSON.
    """
    if not text or text in ("application/json", "*/*"):
        return _ROWS
    refused_names: list[str] = []
    for part in _PART.findall(text):
        name = part.partition(";")[0].strip().lower()
        parameters = {match[1]: match[2] or match[3].strip() for match in _PARAMETER.finditer(part)}
        strips_nulls = parameters.get("nulls") == "stripped"
        kind = _KINDS.get(name.removeprefix("application/vnd.pgrst."))
        if kind is not None or not name.startswith(_REFUSED):
            return MediaRequest(kind or "rows", strips_nulls, _read_plan_options(parameters))
        refused_names.append(name[:100])
    raise MediaTypeRefused(f"`{', '.join(refused_names)[:200]}` is not a form in which rows are answered.")


def _read_plan_options(parameters: dict[str, str]) -> tuple[str, ...]:
    return tuple(option for option in parameters.get("options", "").split("|") if option in _PLAN_OPTIONS)


def strip_nulls(value: Any) -> Any:
    """Returns a value without the keys of objects whose value is null, as Postgres' `json_strip_nulls` does."""
    if isinstance(value, dict):
        return {name: strip_nulls(each) for name, each in value.items() if each is not None}
    return [strip_nulls(each) for each in value] if isinstance(value, list) else value
