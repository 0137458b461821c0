"""Checkpoints as plain JSON: what is read back can hold data only, never code (docs/security.md)."""

from base64 import b64decode, b64encode
from typing import Any

from langgraph.types import Interrupt, Send
from pydantic_core import from_json, to_json

_MARK = "$"
_BARE = frozenset({type(None), bool, int, float, str})


def dumps(value: Any) -> str:
    """The JSON text of what LangGraph keeps; TypeError for anything else than data and its own two kinds."""
    return to_json(_plain(value)).decode()


def dumps_json(value: Any) -> str:
    """The same of what came from JSON, and so has neither tuples nor bytes: several times cheaper."""
    text = to_json(value, fallback=_plain).decode()
    # Somebody's own mark must not be read as ours.
    return text if f'"{_MARK}"' not in text else dumps(value)


def loads(text: str) -> Any:
    return _made(from_json(text))


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            # Most of a checkpoint are numbers of versions: no call for each.
            plain = {_key(name): item if type(item) in _BARE else _plain(item) for name, item in value.items()}
            return {_MARK: "dict", "of": plain} if _MARK in plain else plain
        case list():
            return [_plain(item) for item in value]
        case tuple():
            return {_MARK: "tuple", "of": [_plain(item) for item in value]}
        case bytes():
            return {_MARK: "bytes", "of": b64encode(value).decode()}
        case Send():
            return {_MARK: "send", "to": value.node, "of": _plain(value.arg)}
        case Interrupt():
            return {_MARK: "interrupt", "id": value.id, "of": _plain(value.value)}
        case BaseException():
            return f"{type(value).__name__}: {value}"
    raise TypeError(f"a checkpoint holds data, not {type(value).__name__}")


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError("the names of a checkpoint are text")
    return name


def _made(value: Any) -> Any:  # noqa: PLR0911
    match value:
        case list():
            return [_made(item) for item in value]
        case {"$": "dict", "of": dict(of)}:
            return {name: _made(item) for name, item in of.items()}
        case {"$": "tuple", "of": list(of)}:
            return tuple(_made(item) for item in of)
        case {"$": "bytes", "of": str(of)}:
            return b64decode(of)
        case {"$": "send", "to": str(to), "of": of}:
            return Send(to, _made(of))
        case {"$": "interrupt", "id": str(id_), "of": of}:
            return Interrupt(value=_made(of), id=id_)
        case dict():
            return {name: _made(item) for name, item in value.items()}
    return value
