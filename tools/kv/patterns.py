"""Patterns of expose rules: what may stand in one."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_PLACEHOLDER = re.compile(r"\{user\.(?:id|role)\}")
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
