"""Defaults of columns: a few SQL expressions, evaluated at each insert, with the same result on both databases."""

import re
import uuid
from typing import Any

from baobab.tools.core.errors import BadRequest
from baobab.tools.data.actor import Actor
from baobab.tools.data.catalogue import Column

_TEXT = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_CAST = re.compile(r"::\s*[a-z][a-z0-9 ]*(\([0-9, ]+\))?(\[\])?$", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = re.compile(r"[\w -]{1,60}")
_NOW = ("now()", "current_timestamp", "transaction_timestamp()", "statement_timestamp()", "localtimestamp")
_DAY = ("current_date", "now()::date")
_UUID = ("gen_random_uuid()", "uuid_generate_v4()")
_USER = ("current_user_id()", "auth.uid()")
KNOWN = "a number, a 'text', true, false, null, now(), current_date, gen_random_uuid() or current_user_id()"


def find_default(column: Column, actor: Actor, now: str) -> Any:
    """Returns the canonical value that a column gets if a row leaves it out. None for null."""
    if column.default is None:
        return None
    return evaluate(column, column.default, actor, now)


def evaluate(column: Column, text: str, actor: Actor, now: str) -> Any:  # noqa: PLR0911 - one for each form
    """Returns the canonical value of a default. Raises BadRequest if the text is no default, or has another type than
    the column.
    """
    plain = text.strip()
    lower = plain.lower()
    if lower in _UUID:
        return _of_type(column, str(uuid.uuid4()))
    if lower in _DAY:
        return _of_type(column, now[:10])
    if lower in _NOW:
        return _of_type(column, now)
    if lower in _USER:
        return None if actor.user_id is None else _of_type(column, actor.user_id)
    plain = _CAST.sub("", plain).strip()
    if plain.lower() == "null":
        return None
    literal = _TEXT.fullmatch(plain)
    if literal:
        return _of_type(column, literal[1].replace("''", "'"))
    if plain.lower() in ("true", "false") or _NUMBER.fullmatch(plain):
        return _of_type(column, plain)
    if plain.lower() == "array[]" and column.type.array:
        return []
    advice = f" Write the text as `'{plain}'`, with its quotes." if _WORDS.fullmatch(plain) else ""
    raise BadRequest(f"`{column.name}`: the default `{text[:60]}` is not {KNOWN}.{advice}")


def _of_type(column: Column, text: str) -> Any:
    kind = column.type
    if kind.name in ("date", "time") and "T" in text:
        text = text[:10] if kind.name == "date" else text[11:].partition("+")[0]
    if kind.name in ("json", "jsonb") and not kind.array:
        return kind.clean(kind.parse(text, column.name), column.name)
    return kind.parse(text, column.name)
