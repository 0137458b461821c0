"""Checkpoints as plain JSON: what is read back can only be data, never code (docs/security.md)."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from langgraph.types import Interrupt, Send
from pydantic_core import from_json, to_json

from baobab.runtime.agents.pieces import MARK

_BARE = frozenset({type(None), bool, int, float, str})


def dumps(value: Any) -> str:
    """Encodes a value of LangGraph's as JSON text. TypeError for anything but data, Send and Interrupt."""
    return to_json(_to_plain(value)).decode()


def dumps_json(value: Any) -> str:
    """Does the same as `dumps`, several times faster, for a value that came from JSON and has neither tuples nor
    bytes.
    """
    text = to_json(value, fallback=_to_plain).decode()
    # A key of the user's that equals the mark must not be read as ours.
    return text if f'"{MARK}"' not in text else dumps(value)


def loads(text: str, pieces: Mapping[str, str] | None = None) -> Any:
    """Decodes what `dumps` encoded. pieces: the texts of the pieces that it names (pieces.py), by digest."""
    return _restore_value(from_json(text), pieces or {})


def _to_plain(value: Any) -> Any:  # noqa: PLR0911 - one return for each kind
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            # Most of a checkpoint are version numbers, which are not worth a call each.
            plain = {_check_key(name): item if type(item) in _BARE else _to_plain(item) for name, item in value.items()}
            return {MARK: "dict", "of": plain} if MARK in plain else plain
        case list():
            return [_to_plain(item) for item in value]
        case tuple():
            return {MARK: "tuple", "of": [_to_plain(item) for item in value]}
        case bytes():
            return {MARK: "bytes", "of": b64encode(value).decode()}
        case Send():
            return {MARK: "send", "to": value.node, "of": _to_plain(value.arg)}
        case Interrupt():
            return {MARK: "interrupt", "id": value.id, "of": _to_plain(value.value)}
        case BaseException():
            return f"{type(value).__name__}: {value}"
    raise TypeError(f"a checkpoint holds data, not {type(value).__name__}")


def _check_key(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError("the names of a checkpoint are text")
    return name


def _restore_value(value: Any, pieces: Mapping[str, str]) -> Any:  # noqa: PLR0911 - one return for each kind
    match value:
        case list():
            return [_restore_value(item, pieces) for item in value]
        case {"$": "dict", "of": dict(of)}:
            return {name: _restore_value(item, pieces) for name, item in of.items()}
        case {"$": "tuple", "of": list(of)}:
            return tuple(_restore_value(item, pieces) for item in of)
        case {"$": "bytes", "of": str(of)}:
            return b64decode(of)
        case {"$": "send", "to": str(to), "of": of}:
            return Send(to, _restore_value(of, pieces))
        case {"$": "interrupt", "id": str(id_), "of": of}:
            return Interrupt(value=_restore_value(of, pieces), id=id_)
        case {"$": "piece", "of": str(digest)}:
            return _restore_value(from_json(pieces[digest]), pieces)
        case dict():
            return {name: _restore_value(item, pieces) for name, item in value.items()}
    return value
