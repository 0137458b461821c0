"""Patterns of rules for keys and channels: what may stand in one, and which names it matches."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_PLACEHOLDER = re.compile(r"\{user\.(?:id|role)\}")
_TOKEN = re.compile(r"(\*|\{user\.id\}|\{user\.role\})")
_SEGMENT = r"[^:\n]+?"
MAX_WILDCARDS = 8


def check_pattern(pattern: str) -> str:
    if not 1 <= len(pattern) <= 512 or not _PRINTABLE.fullmatch(pattern):
        raise ValueError("must be 1 to 512 printable ASCII characters")
    if pattern.startswith("_"):
        raise ValueError("must not start with `_`: such keys are reserved")
    if re.search(r"[{}]", _PLACEHOLDER.sub("", pattern)):
        raise ValueError("the only placeholders are {user.id} and {user.role}")
    if "***" in pattern or len(re.findall(r"\*+", pattern)) > MAX_WILDCARDS:
        raise ValueError(f"may hold at most {MAX_WILDCARDS} wildcards, each `*` or `**`")
    for part in pattern.split(":"):
        # With two in one part it would be ambiguous which matches what, and matching would be slow.
        if len(re.findall(r"(?<!\*)\*(?!\*)|\{user", part)) > 1:
            raise ValueError("may hold one `*` or placeholder in each part between `:`")
    return pattern


def names_owner(pattern: str) -> bool:
    return _PLACEHOLDER.search(pattern) is not None


Pattern = Annotated[
    str,
    AfterValidator(check_pattern),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 512}),
    Field(
        description="`*` is one part (no `:`), `**` anything, {user.id} and {user.role} the caller's own.",
        examples=["user:{user.id}:**"],
    ),
]


def literal_prefix(pattern: str) -> int:
    token = _TOKEN.search(pattern)
    return token.start() if token else len(pattern)


def of_anybody(pattern: str) -> re.Pattern[str]:
    """Returns an expression that matches a key; a placeholder stands for one part of any user."""
    return re.compile(_expression(pattern, {"*": _SEGMENT, "{user.id}": _SEGMENT, "{user.role}": _SEGMENT}))


def of_owner(pattern: str) -> re.Pattern[str]:
    """Returns an expression that matches a user's id, role and key, each on its own line: one for all users.

    An id or role that is not one part never matches, or the user `a` would own what belongs to the user `a:b`.
    """
    lines = "".join(
        rf"(?P<{claim}>[^:\n]+)\n" if f"{{user.{claim}}}" in pattern else r"[^\n]*\n" for claim in ("id", "role")
    )
    return re.compile(lines + _expression(pattern, {"*": _SEGMENT, "{user.id}": "(?P=id)", "{user.role}": "(?P=role)"}))


def _expression(pattern: str, meaning: Mapping[str, str]) -> str:
    """Returns an expression that takes time proportional to the key's length times the number of wildcards.

    The part between two `**` is matched at its first place only. This leaves the most of the key to the rest, so that
    a later place could not match where the first does not.
    """
    first, *later_parts = pattern.split("**")
    beginning = "".join(meaning.get(part) or re.escape(part) for part in _TOKEN.split(first))
    if not later_parts:
        return beginning
    *middle, last = later_parts
    return f"(?>{beginning})" + "".join(f"(?>{_anywhere(part, meaning)})" for part in middle) + _anywhere(last, meaning)


def _anywhere(chunk: str, meaning: Mapping[str, str]) -> str:
    """Returns an expression that matches a chunk at its first place from here on."""
    if not chunk:
        return ".*"
    parts = [(meaning.get(part), part) for part in _TOKEN.split(chunk)]
    texts = [expression or re.escape(part) for expression, part in parts]
    wild = next((n for n, (expression, _) in enumerate(parts) if expression == _SEGMENT), None)
    if wild is None or any(":" in part for expression, part in parts[:wild] if expression is None):
        return ".*?" + "".join(texts)
    # The chunk may begin anywhere in a part, but only its first place there is tried: if the wildcard cannot match
    # from there, it cannot match from a later place. Trying all places would take quadratic time.
    return rf"(?:[^:\n]*+:)*?(?>[^:\n]*?{''.join(texts[:wild])}){''.join(texts[wild:])}"
