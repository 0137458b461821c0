"""Puts a model's tool calls in order, whatever habits its provider has: each call arrives once, whole and in sequence.

Providers differ in how they stream calls: ids and names come late, empty, again or in parts, the index is missing or
always 0, calls are interleaved, and arguments come as objects, twice, or as all of the text so far.
"""

import json
import re
import secrets
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.events import LARGEST

_NO_ID = frozenset(("", "None", "null", "undefined"))
_NO_ARGUMENTS = frozenset(("", "{}", "null"))
"""Arguments of these texts may be a placeholder for those that follow."""
_MOST_CALLS = 10_000
_STRUCTURE = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
CUT_REASONS = frozenset(
    (
        "length",
        "content_filter",
        "model_length",
        "max_tokens",
        "model_context_window_exceeded",
        "insufficient_system_resource",
        "sensitive",
        "error",
        "network_error",
    )
)
"""The finish reasons with which a call may be incomplete."""


class ToolCallSequencer:
    """The calls of one answer. Takes their pieces as they arrive, and returns pieces in OpenAI's form.

    The first piece of a call has its index, id, type and name; the pieces of a call follow each other. A call that
    begins while another is incomplete is held back until that one is complete or the answer ends.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None
        self._held_back: dict[int, _Call] = {}
        """The calls with something that is not passed on yet, by their numbers."""
        self._room = LARGEST
        self._current = 0
        """The number of the call whose pieces are passed on."""

    @property
    def has_calls(self) -> bool:
        return any(not call.is_empty for call in self._calls)

    def add_pieces(self, pieces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Takes the `tool_calls` of one delta and returns those to pass on.

        Raises UpstreamMalformed for far too many calls, or far too long ones: all of them are in memory.
        """
        for position, piece in enumerate(pieces):
            self._add_piece(_Piece(piece), position, is_alone=len(pieces) == 1)
        return self._take_ready()

    def end(self, reason: str | None) -> list[dict[str, Any]]:
        """Returns the pieces that were held back. reason: the answer's finish reason."""
        ready = [piece for _, call in sorted(self._held_back.items()) for piece in call.take_rest(reason)]
        self._held_back.clear()
        self._current = len(self._calls)
        return ready

    def _add_piece(self, piece: "_Piece", position: int, *, is_alone: bool) -> None:
        self._room -= len(piece.text)
        if self._room < 0 or len(self._calls) > _MOST_CALLS:
            raise UpstreamMalformed
        call = self._find_call(piece, position, is_alone=is_alone)
        if call is None:
            call = _Call(len(self._calls))
            self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id and not call.id and not call.has_begun:
            # An id that another call of this answer has would make the results ambiguous.
            call.id = _make_id() if piece.id in self._by_id else piece.id
            self._by_id.setdefault(piece.id, call)
        call.add(piece)
        self._last = self._held_back[call.number] = call

    def _find_call(self, piece: "_Piece", position: int, *, is_alone: bool) -> "_Call | None":
        """Returns the call that a piece belongs to; None if it begins another one."""
        last = self._last
        if piece.index is not None:
            call = self._by_index.get(piece.index)
        elif piece.id:
            call = self._by_id.get(piece.id)
        elif not piece.name and not is_alone and position < len(self._calls):
            return self._calls[position]
        else:
            call = last if is_alone or position == 0 or not piece.name else None
        if call is not None:
            return None if call.ends_before(piece) else call
        # Some providers count the index up with each piece, or give each piece a new id.
        if not piece.text or piece.is_object:
            return None
        if not piece.name and not (piece.id and piece.index is not None):
            return last if last is not None and not last.is_complete else None
        known_call = self._by_id.get(piece.id) if piece.id else None
        is_same = known_call is not None and piece.name in ("", known_call.name) and not known_call.is_complete
        return known_call if is_same else None

    def _take_ready(self) -> list[dict[str, Any]]:
        ready: list[dict[str, Any]] = []
        while self._current < len(self._calls):
            call = self._calls[self._current]
            if pieces := call.take_piece():
                ready += pieces
                self._held_back.pop(call.number, None)
            is_last = self._current == len(self._calls) - 1
            if is_last or not (call.is_complete or call.is_custom) or call.is_placeholder:
                break
            self._current += 1
        return ready


class _Piece:
    """One entry of `tool_calls` as a provider sends it. text: the arguments or the input, or a part of them."""

    def __init__(self, entry: dict[str, Any]) -> None:
        index, id_ = entry.get("index"), entry.get("id")
        self.index = index if isinstance(index, int) and not isinstance(index, bool) else None
        self.id = str(id_) if isinstance(id_, (str, int)) and str(id_) not in _NO_ID else ""
        function, custom = entry.get("function"), entry.get("custom")
        self.is_custom = isinstance(custom, dict) or entry.get("type") == "custom"
        fields: dict[str, Any] = custom if isinstance(custom, dict) else function if isinstance(function, dict) else {}
        name = fields.get("name")
        self.name = name if isinstance(name, str) else ""
        text = fields.get("input" if self.is_custom else "arguments")
        self.text = text if isinstance(text, str) else "" if text is None else to_json(text).decode()
        self.other_fields = {
            name: value
            for name, value in entry.items()
            if name not in ("index", "id", "type", "function", "custom", "name") and value is not None
        }

    @property
    def is_object(self) -> bool:
        return self.text.endswith("}") and is_json_object(self.text)


class _Call:
    """One call. number: its index in what is passed on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.is_custom = False
        self.has_begun = False
        """Whether its first piece was passed on."""
        self._parts: list[str] = []
        self._length = 0
        self._waiting: list[str] = []
        """The parts of the text that are not passed on yet."""
        self._other_fields: dict[str, Any] = {}
        self._scanner = _ObjectScanner()

    @property
    def text(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it: some providers pad their deltas with empty calls."""
        return not (self.name or self._length or self._other_fields)

    @property
    def is_complete(self) -> bool:
        """Whether its arguments are a whole JSON object."""
        return self._scanner.is_complete

    @property
    def is_placeholder(self) -> bool:
        return not self.is_custom and self._length <= len("null") and self.text.strip() in _NO_ARGUMENTS

    def add(self, piece: _Piece) -> None:
        self.is_custom = self.is_custom or piece.is_custom
        self._other_fields |= piece.other_fields
        if piece.name and not self.has_begun and piece.name != self.name:
            # A name may come in parts; then each of them comes before the arguments.
            is_part = self.name and not self._length and not piece.name.startswith(self.name)
            self.name = self.name + piece.name if is_part else piece.name
        text = piece.text
        if not text:
            return
        if not self.is_custom and self._length:
            if self.is_placeholder and text.lstrip().startswith("{"):
                self._parts, self._waiting, self._length, self._scanner = [], [], 0, _ObjectScanner()
            elif text.startswith("{") and len(text) >= self._length and text.startswith(self.text):
                # All of the arguments so far, or the whole of them a second time. No JSON begins like this.
                text = text[self._length :]
            elif self.is_complete:
                return
        self._parts.append(text)
        self._waiting.append(text)
        self._length += len(text)
        if not self.is_custom:
            self._scanner.add(text)

    def ends_before(self, piece: _Piece) -> bool:
        """Returns whether a piece that seems to continue this call begins another one."""
        if not piece.name or not self.name:
            return False
        if piece.id and self.id and piece.id != self.id:
            if not self._length:
                return not piece.text or piece.name != self.name
            return piece.name != self.name or self.is_complete
        if not self.is_complete:
            return False
        if piece.name != self.name:
            return True
        return piece.is_object and not self.is_placeholder and piece.text != self.text

    def take_piece(self) -> list[dict[str, Any]]:
        """Returns what can be passed on before the end of the answer, one piece or none."""
        return [] if self.is_placeholder or not (self.name and self._length) else self._take_waiting()

    def take_rest(self, reason: str | None) -> list[dict[str, Any]]:
        """Returns what was held back until the end of the answer, one piece or none. reason: its finish reason."""
        if self.is_empty:
            return []
        if not self.is_custom and self.is_placeholder and self.text.strip() != "{}" and reason not in CUT_REASONS:
            self._parts, self._waiting, self._length = ["{}"], ["{}"], 2
        return self._take_waiting()

    def _take_waiting(self) -> list[dict[str, Any]]:
        text = "".join(self._waiting)
        self._waiting.clear()
        other_fields, self._other_fields = self._other_fields, {}
        if self.has_begun and not text and not other_fields:
            return []
        kind, field = ("custom", "input") if self.is_custom else ("function", "arguments")
        if self.has_begun:
            return [{"index": self.number, kind: {field: text}, **other_fields}]
        self.has_begun = True
        self.id = self.id or _make_id()
        fields = {"name": self.name, field: text}
        return [{"index": self.number, "id": self.id, "type": kind, kind: fields, **other_fields}]


class _ObjectScanner:
    """Finds the end of a JSON object whose text arrives in parts. Each character is looked at once."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_text = False
        self._rest = ""
        self._unread: list[str] = []
        self._has_ended = False

    def add(self, text: str) -> None:
        self._unread.append(text)

    @property
    def is_complete(self) -> bool:
        if self._unread:
            text, self._unread = self._rest + "".join(self._unread), []
            # An escape may be divided between two parts.
            backslashes = len(text) - len(text.rstrip("\\"))
            self._rest = "\\" if backslashes % 2 else ""
            for match in _STRUCTURE.finditer(text, 0, len(text) - len(self._rest)):
                self._read_character(match[0])
        return self._has_ended

    def _read_character(self, character: str) -> None:
        if character == '"':
            self._is_in_text = not self._is_in_text
        elif not self._is_in_text and len(character) == 1:
            self._depth += 1 if character in "{[" else -1
            self._has_ended = self._has_ended or self._depth <= 0


def mend_calls(calls: Sequence[dict[str, Any]], reason: str | None) -> list[dict[str, Any]]:
    """Returns the calls of an answer in one piece, each with an id of its own and arguments that are text.

    reason: the answer's finish reason.
    """
    mended_calls: list[dict[str, Any]] = []
    ids: set[str] = set()
    for entry in calls:
        call, piece = _Call(0), _Piece(entry)
        call.id = "" if piece.id in ids else piece.id
        call.add(piece)
        for mended_call in call.take_rest(reason):
            ids.add(mended_call["id"])
            mended_calls.append({name: value for name, value in mended_call.items() if name != "index"})
    return mended_calls


def is_json_object(text: str) -> bool:
    try:
        return isinstance(from_json(text), dict)
    except ValueError:
        return False


def is_cut_off(arguments: str, reason: str | None) -> bool:
    """Returns whether the arguments of a call break off before their end. reason: the answer's finish reason."""
    try:
        json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        try:
            is_beginning = isinstance(from_json(arguments, allow_partial=True), dict)
        except ValueError:
            is_beginning = False
        return is_beginning or reason in CUT_REASONS
    return not arguments and reason in CUT_REASONS


def _make_id() -> str:
    return f"call_{secrets.token_hex(12)}"
