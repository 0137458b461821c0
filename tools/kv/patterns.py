"""Patterns of expose rules: what may stand in one, and which keys it matches."""

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
    for segment in pattern.split(":"):
        # Two in one segment would leave it open which takes what, and cost time to find out.
        if len(re.findall(r"(?<!\*)\*(?!\*)|\{user", segment)) > 1:
            raise ValueError("may hold one `*` or placeholder in each `:` segment")
    return pattern


def names_owner(pattern: str) -> bool:
    return _PLACEHOLDER.search(pattern) is not None


Pattern = Annotated[
    str,
    AfterValidator(check_pattern),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 512}),
    Field(
        description="`*` is one segment (no `:`), `**` anything, {user.id} and {user.role} the caller's own.",
        examples=["user:{user.id}:**"],
    ),
]


def literal_prefix(pattern: str) -> int:
    found = _TOKEN.search(pattern)
    return found.start() if found else len(pattern)


def of_anybody(pattern: str) -> re.Pattern[str]:
    """Matches a key; a placeholder stands for one segment, whosever it is."""
    return re.compile(_expression(pattern, {"*": _SEGMENT, "{user.id}": _SEGMENT, "{user.role}": _SEGMENT}))


def of_owner(pattern: str) -> re.Pattern[str]:
    """Matches a user's id, role and key, each on a line of its own: one expression does for all users.

    An id or role that is not one segment names nobody; else the user `a` would own what belongs to the user `a:b`.
    """
    lines = "".join(
        rf"(?P<{claim}>[^:\n]+)\n" if f"{{user.{claim}}}" in pattern else r"[^\n]*\n" for claim in ("id", "role")
    )
    return re.compile(lines + _expression(pattern, {"*": _SEGMENT, "{user.id}": "(?P=id)", "{user.role}": "(?P=role)"}))


def _expression(pattern: str, meaning: Mapping[str, str]) -> str:
    """An expression whose time grows with the key's length times the pattern's wildcards, whatever the key.

    What stands between two `**` is taken at its first place, and never tried again at another: an earlier place
    leaves more of the key to the rest, so another could not match where the first does not.
    """
    first, *others = pattern.split("**")
    anchored = "".join(meaning.get(part) or re.escape(part) for part in _TOKEN.split(first))
    if not others:
        return anchored
    *middle, last = others
    return f"(?>{anchored})" + "".join(f"(?>{_anywhere(part, meaning)})" for part in middle) + _anywhere(last, meaning)


def _anywhere(chunk: str, meaning: Mapping[str, str]) -> str:
    """A chunk at its first place from here on."""
    if not chunk:
        return ".*"
    parts = [(meaning.get(part), part) for part in _TOKEN.split(chunk)]
    texts = [known or re.escape(part) for known, part in parts]
    wild = next((n for n, (known, _) in enumerate(parts) if known == _SEGMENT), None)
    if wild is None or any(":" in part for known, part in parts[:wild] if known is None):
        return ".*?" + "".join(texts)
    # The chunk begins within a segment, anywhere in it: only its first place there is tried, since what the wildcard
    # does not find from there it does not find from a later one. Trying them all would cost the segment's square.
    return rf"(?:[^:\n]*+:)*?(?>[^:\n]*?{''.join(texts[:wild])}){''.join(texts[wild:])}"
