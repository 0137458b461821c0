"""Listings: which entries of a list an answer holds, how many there are in all, and how to go on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core.effects import Effect

Schema = Mapping[str, Any]

_NEXT = {"cursor": ("next_cursor", "cursor"), "before": ("next_before",), "after": ("next_after",)}
"""By the argument that goes on: the fields of answers that hold its next value."""
_BESIDE = frozenset({name for names in _NEXT.values() for name in names}).union(
    ("total", "limit", "offset", "nextOffset", "warnings", "access")
)
"""Fields that may stand beside the entries of what is nothing but a list."""


@dataclass(frozen=True, slots=True)
class Total:
    """How many entries a list has in all; at least so many, if it is not exact."""

    count: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """How the answers of a tool hold a list. Most tools need not say it: it follows from their schemas.

    entries: the field with the entries. is_bare: the answer is the list itself, or one entry of it; where answers must
    be objects, the list gets the name `entries`.
    continues: the argument that goes on, where answers do not hold its next value, and the field of an entry that is
    this value.
    sample: of a write, which answers what it wrote: how many entries an interface for models shows.
    """

    entries: str
    is_bare: bool = False
    continues: tuple[str, str] | None = None
    sample: int | None = None

    def find_next(self, arguments: Schema, answer: Schema) -> tuple[str, str] | None:
        """Returns the argument that goes on and the field of the answer with its next value; None if it holds none."""
        for argument, fields in _NEXT.items():
            for name in fields if argument in arguments else ():
                if answer.get(name) is not None:
                    return argument, name
        return None

    def describe_part(
        self, properties: Schema, arguments: Schema, answer: Schema, total: Total | None, shown_count: int
    ) -> dict[str, Any]:
        """Returns `total` or `more_than`, and with which value of which argument the list goes on, as `next_ARGUMENT`.

        properties: the schemas of the tool's arguments. answer: the result, an object. total: as far as the call knows.
        shown_count: how many of the entries in the answer are shown; less than all of them if it was too long.
        """
        entries = answer[self.entries]
        if total is None and isinstance(answer.get("total"), int):
            total = Total(answer["total"])
        if self.sample is not None:
            return {"total": len(entries) if total is None else total.count}
        offset = arguments.get("offset") or 0
        end = offset + len(entries)
        limit = arguments.get("limit") or properties.get("limit", {}).get("default")
        is_full = limit is not None and len(entries) >= limit
        found_next = self.find_next(properties, answer)
        is_later = self._is_later_page(arguments)
        if total is None or is_later:
            has_more = found_next is not None or is_full
        else:
            has_more = found_next is not None or end < total.count or (is_full and not total.is_exact)
        part: dict[str, Any] = {}
        if total is not None and total.is_exact:
            part["total"] = total.count
        elif has_more or is_later or (offset and not entries):
            # Whatever goes on, or follows an earlier page, is more than what is shown here.
            part["more_than"] = max(end, 0 if total is None else total.count - 1)
        else:
            part["total"] = end
        next_name = self.name_next(properties)
        if next_name is not None and shown_count and (shown_count < len(entries) or has_more):
            continues_with = entries[shown_count - 1].get(self.continues[1]) if self.continues else offset + shown_count
            part[next_name] = continues_with
        return part

    def name_next(self, properties: Schema) -> str | None:
        """Returns the name under which a reader is told how the list goes on; None where the answer itself says it."""
        if self.continues is not None:
            return f"next_{self.continues[0]}"
        return "next_offset" if "offset" in properties else None

    def goes_on(self, properties: Schema) -> bool:
        """Returns whether any entry of the list can be the last one of a page."""
        return self.continues is not None or "offset" in properties

    def _is_later_page(self, arguments: Schema) -> bool:
        begins_later = [*_NEXT, *([self.continues[0]] if self.continues else [])]
        return any(arguments.get(argument) for argument in begins_later)


def derive_listing(effect: Effect, returns: Schema | None) -> Listing | None:
    """Returns the listing of a tool that reads nothing but a list, by the JSON Schema of its result."""
    if effect != "read" or returns is None or returns.get("type") != "object":
        return None
    properties = returns.get("properties", {})
    lists = [name for name, schema in properties.items() if _is_list(schema) and name != "warnings"]
    if len(lists) != 1 or not properties.keys() - {lists[0]} <= _BESIDE:
        return None
    return Listing(lists[0])


def _is_list(schema: Schema) -> bool:
    return any(choice.get("type") == "array" for choice in (schema, *schema.get("anyOf", ())))
