"""Escapes the text of a proposer for the person who decides, so that nothing in it is invisible."""

import json
import re
import unicodedata
from typing import Any

_INVISIBLE = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
# Printable by their category, and yet drawn as nothing or over what stands before them.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(c) for c in range(0xFE00, 0xFE10)}
# Plain characters are passed over quickly: a text of a million characters is escaped several times for one page.
_UNUSUAL = re.compile(r"[^ -~]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:@/-]{1,64}", re.ASCII)
_MOST_OF_NAME = 100


def escape_text(text: str) -> str:
    """Returns the text on one line, with escapes for characters that are invisible or reorder others."""
    return _UNUSUAL.sub(lambda match: _escape(match[0]), text)


def escape_name(name: str) -> str:
    """Returns a plain name as it is; any other quoted, escaped and, beyond 100 characters, cut with its length."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    cut = name[:_MOST_OF_NAME]
    more = f"… ({len(name)} characters)" if len(name) > _MOST_OF_NAME else ""
    return escape_text(json.dumps(cut, ensure_ascii=False)) + more


def escape_json(value: Any, *, indent: int | None = None) -> str:
    """Returns JSON text in which only its own line ends are line ends."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "\n".join(escape_text(line) for line in text.split("\n"))


def is_seen(character: str) -> bool:
    """Returns whether a character is drawn as something of its own, in its place."""
    return unicodedata.category(character) not in _INVISIBLE and character not in _BLANK


def _escape(character: str) -> str:
    if is_seen(character):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
