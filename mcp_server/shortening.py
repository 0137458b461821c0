"""Shortens results to what fits into a model's context, and lets it read on where something was left out."""

import hashlib
import json
import re
from typing import Any

from pydantic_core import from_json, to_json

from baobab.mcp_server.errors import CutValueSent, PartChanged, PartInvalid

READ_ON = "read_on"
"""The argument of every tool that reads: what a cut value says, to get its next part."""
MOST_CHARACTERS = 50_000
"""The most characters of one result, unless the address says otherwise."""
_ENTRY_SHARE, _VALUE_SHARE = 25, 2.5
"""A text within an entry of a list has at most this part of a result; any other text, that one."""
SPARE = 4_000
"""Characters that are kept free for what is said beside a result."""
_FAIR = 600
"""Not all members of an object are shown if each would have fewer characters."""
_MOST_NOTES, _LONGEST_NOTED = 8, 150
_LONG_NAME, _SHOWN_NAME = 200, 100
_LONGEST_PATH = 1000
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACE = re.compile(r"([A-Za-z0-9_~.-]{0,1000})@([0-9]{1,9})#([0-9a-f]{8})")
_MARK_START = "⟦cut: "
_MARK = re.compile("⟦cut: [0-9]+ of [0-9]+ characters are left out[^⟦⟧]{0,1200}⟧")

Path = tuple[str, ...]


class Shortener:
    """Shortens one result. left_out: what was left out of the first few lists and objects, each with its place."""

    def __init__(self, most: int = MOST_CHARACTERS, *, reads_on: bool, is_list: bool) -> None:
        """reads_on: whether the call can be repeated to read on, as only one that reads can."""
        self.room = most - SPARE
        self.left_out: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.left_out_count = self.cut_count = 0
        self._reads_on = reads_on
        self._most_text = int(most / _ENTRY_SHARE if is_list else most / _VALUE_SHARE if reads_on else self.room)
        self._sizes: dict[int, int] = {}
        """The sizes of lists and objects by their identity, with long texts cut."""
        self._long: set[int] = set()
        """The identities of lists and objects in which a text or a name is too long."""

    def shorten(self, value: Any) -> Any:
        """Returns the value, shortened to the room of one result."""
        return self._fit(value, self.room, ())

    def shorten_entries(self, entries: list[Any], name: str, room: int, most: int, *, can_go_on: bool) -> list[Any]:
        """Returns the first entries of a list, as many as fit and at most `most`.

        can_go_on: whether the list has pages of any length, so that the next one begins with what is left out here.
        """
        excerpt = self.fit_list(entries[:most], room, (name,))
        if len(excerpt) < len(entries) and not can_go_on:
            self._note((name,), "entries", len(excerpt), entries)
        return excerpt

    def fit_list(self, entries: list[Any], room: int, path: Path, start: int = 0) -> list[Any]:
        """Returns the first entries, as many as fit. start: the index of the first one in its list."""
        excerpt: list[Any] = []
        left = room - 2
        for index, entry in enumerate(entries, start):
            size = self._measure(entry) + 1
            if size > left and (excerpt or not isinstance(entry, str | list | dict)):
                break
            excerpt.append(self._fit(entry, left, (*path, str(index))))
            left -= size
        return excerpt

    def fit_object(self, members: dict[str, Any], room: int, path: Path, start: int = 0) -> dict[str, Any]:
        """Returns the members of an object with large ones shortened, or as many as fit. start: the number of the
        first one in its object.
        """
        costs = {
            name: self._measure(self._cut_name(name, 0)) + 2 + self._measure(value) for name, value in members.items()
        }
        left = room - 2
        shares: dict[str, int] = {}
        if left >= len(members) * _FAIR:
            # Small members are shown whole, and what is left is shared by the large ones.
            for count, name in zip(range(len(costs), 0, -1), sorted(costs, key=costs.__getitem__), strict=True):
                shares[name] = min(costs[name], left // count)
                left -= shares[name]
        excerpt: dict[str, Any] = {}
        for index, (name, value) in enumerate(members.items(), start):
            share = shares.get(name, left)
            if costs[name] > share and (not isinstance(value, str | list | dict) or (excerpt and not shares)):
                break
            shown_name = self._cut_name(name, index)
            value_path = (*path, name if _PLAIN.fullmatch(name) else f"~{index}")
            excerpt[shown_name] = self._fit(value, share - self._measure(shown_name) - 2, value_path)
            if not shares:
                left -= costs[name]
        return excerpt

    def _fit(self, value: Any, room: int, path: Path) -> Any:
        if isinstance(value, str):
            return self._fit_text(value, min(room, self._most_text), path)
        if not isinstance(value, list | dict) or (self._measure(value) <= room and id(value) not in self._long):
            return value
        what, excerpt = (
            ("entries", self.fit_list(value, room, path))
            if isinstance(value, list)
            else ("members", self.fit_object(value, room, path))
        )
        if len(excerpt) < len(value):
            self._note(path, what, len(excerpt), value)
        return excerpt

    def _fit_text(self, text: str, room: int, path: Path) -> str:
        if len(text) + 2 <= room and self._measure(text) <= room:
            return text
        self.cut_count += 1
        longest_place = render_place(path, len(text), text)
        says_place = self._reads_on and len(longest_place) < min(_LONGEST_PATH, room)
        excerpt = take(text, 0, max(room - 90 - (len(longest_place) if says_place else 0), 0))
        how = f"; {READ_ON}={render_place(path, len(excerpt), text)}" if says_place else ""
        return f"{excerpt}⟦cut: {len(text) - len(excerpt)} of {len(text)} characters are left out{how}⟧"

    def _note(self, path: Path, what: str, shown_count: int, whole: Any) -> None:
        self.left_out_count += 1
        if len(self.left_out) >= _MOST_NOTES:
            return
        place = render_place(path, shown_count, whole)
        note = {"at": ".".join(path)[:_LONGEST_NOTED], what: len(whole) - shown_count, "of": len(whole)}
        self.left_out.append(note | ({READ_ON: place} if self._reads_on and len(place) <= _LONGEST_NOTED else {}))

    def _measure(self, value: Any) -> int:
        """Returns the number of characters of a value as JSON, with long texts and names cut."""
        if isinstance(value, str):
            return (
                self._most_text if len(value) >= self._most_text else min(self._most_text, len(to_json(value).decode()))
            )
        if not isinstance(value, list | dict):
            return len(to_json(value))
        size = self._sizes.get(id(value))
        if size is None:
            size, is_long = 2, False
            for inner in value if isinstance(value, list) else value.values():
                inner_size = self._measure(inner)
                size += inner_size + 1
                is_long = (
                    is_long or id(inner) in self._long or (isinstance(inner, str) and inner_size >= self._most_text)
                )
            if isinstance(value, dict):
                size += sum(self._measure(self._cut_name(name, 0)) + 1 for name in value)
                is_long = is_long or any(len(name) > _LONG_NAME for name in value)
            self._sizes[id(value)] = size
            if is_long:
                self._long.add(id(value))
        return size

    def _cut_name(self, name: str, index: int) -> str:
        """Returns the name of a member, cut if it is long. Its number keeps it apart from others."""
        if len(name) <= _LONG_NAME:
            return name
        left_out = len(name) - _SHOWN_NAME
        return f"{name[:_SHOWN_NAME]}⟦cut: {left_out} of {len(name)} characters are left out of name {index}⟧"


def read_json(content: bytes) -> Any:
    """Parses a result, also one that is nested as deeply as arguments may be."""
    try:
        return from_json(content)
    except ValueError:
        return json.loads(content)


def take(text: str, start: int, room: int) -> str:
    """Returns the part of a text that begins at `start` and is at most `room` characters long as JSON."""
    part = text[start : start + room]
    while part and (size := len(to_json(part).decode()) - 2) > room:
        part = part[: max(len(part) * room // size - 1, 0)]
    return part


def render_place(path: Path, at: int, whole: Any) -> str:
    """Renders where to read on: the path of a value, how much of it has been read, and its digest."""
    return f"{'.'.join(path)}@{at}#{_digest(whole)}"


def read_part(answer: Any, place: Any, most: int) -> dict[str, Any]:
    """Returns the part of a result from a place on, with the next place if there is more.

    Raises PartInvalid if it is not a place, and PartChanged if the result has changed since.
    """
    match = _PLACE.fullmatch(place) if isinstance(place, str) else None
    if match is None:
        raise PartInvalid
    path, start = tuple(match[1].split(".")) if match[1] else (), int(match[2])
    value = answer
    for name in path:
        value = _step(value, name)
    if not isinstance(value, str | list | dict) or start > len(value) or _digest(value) != match[3]:
        raise PartChanged
    excerpt: Any
    part: dict[str, Any] = {"from": start, "of": len(value)}
    shortener = Shortener(most, reads_on=True, is_list=True)
    if isinstance(value, str):
        part["text"] = excerpt = take(value, start, shortener.room)
    elif isinstance(value, list):
        part["entries"] = excerpt = shortener.fit_list(value[start:], shortener.room, path, start)
    else:
        later_members = dict(list(value.items())[start:])
        part["members"] = excerpt = shortener.fit_object(later_members, shortener.room, path, start)
    end = start + len(excerpt)
    if shortener.left_out:
        part["left_out"] = shortener.left_out
    return part | ({READ_ON: render_place(path, end, value)} if end < len(value) else {})


def refuse_cut_values(arguments: Any, name: str = "") -> None:
    """Raises CutValueSent if an argument holds a value that was cut, as results mark them: it would replace a whole
    value by a part of it.
    """
    if isinstance(arguments, str):
        if _MARK_START in arguments and _MARK.search(arguments):
            raise CutValueSent(f"`{name[:60]}` holds the mark of a value that was cut for you to read.")
    elif isinstance(arguments, dict):
        for key, value in arguments.items():
            refuse_cut_values(key, name or key)
            refuse_cut_values(value, key)
    elif isinstance(arguments, list):
        for value in arguments:
            refuse_cut_values(value, name)


def _step(value: Any, name: str) -> Any:
    try:
        if isinstance(value, list):
            return value[int(name)]
        return list(value.values())[int(name[1:])] if name.startswith("~") else value[name]
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise PartChanged from exc


def _digest(value: Any) -> str:
    content = value.encode(errors="surrogatepass") if isinstance(value, str) else to_json(value)
    return hashlib.blake2b(content, digest_size=4).hexdigest()
