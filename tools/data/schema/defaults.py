"""Defaults of columns: a few SQL expressions, evaluated at each insert, with the same result on both databases."""

import re
import uuid
from typing import Any

from baobab.tools.core import BadRequest
from baobab.tools.data.actor import Actor
from baobab.tools.data.schema.catalogue import Column
from baobab.tools.data.values.temporal_values import shift_moment

_TEXT = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_CAST = re.compile(r"::\s*[a-z][a-z0-9 ]*(\([0-9, ]+\))?(\[\])?$", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = re.compile(r"[\w -]{1,60}")
_NOW = ("now()", "current_timestamp", "transaction_timestamp()", "statement_timestamp()", "localtimestamp")
_DAY = ("current_date", "now()::date")
_UUID = ("gen_random_uuid()", "uuid_generate_v4()")
_USER = ("current_user_id()", "auth.uid()")
_TEXTS = ("text", "varchar", "char")
# Words that are meant as expressions, so that a column of texts must not take them for texts.
_CALLERS = ("auth", "current_user", "current_user_id", "current_user_role", "session_user")
_CLOCKS = ("now", "today", "sysdate", "current_time", "localtime")
_HALF_CALLS = frozenset((*_CALLERS, *_CLOCKS, "uuid", "random", "gen_random_uuid", "uuid_generate_v4"))
_ROLE = "current_user_role()"
_SHIFT = re.compile(r"now\(\)\s*([+-])\s*interval\s*'\s*([0-9]{1,6})\s*(second|minute|hour|day|week)s?\s*'")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_LONGEST_SHIFT = 100 * 365 * 86400
KNOWN = (
    "a number, a 'text', true, false, null, now(), now() + interval '7 days', current_date, gen_random_uuid(), "
    "current_user_id() or current_user_role()"
)


def find_default(column: Column, actor: Actor, now: str) -> Any:
    """Returns the canonical value that a column gets if a row leaves it out. None for null."""
    if column.default is None:
        return None
    return evaluate(column, column.default, actor, now)


def find_update(column: Column, actor: Actor, now: str) -> Any:
    """Returns the canonical value that a column gets at each update. None for null."""
    assert column.on_update is not None
    return evaluate(column, column.on_update, actor, now)


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
    if lower == _ROLE:
        return None if actor.user_role is None else _of_type(column, actor.user_role)
    shift = _SHIFT.fullmatch(lower)
    if shift is not None and (seconds := int(shift[2]) * _SECONDS[shift[3]]) <= _LONGEST_SHIFT:
        return _of_type(column, shift_moment(now, seconds if shift[1] == "+" else -seconds))
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
    if column.type.name in _TEXTS and not column.type.array and _WORDS.fullmatch(plain) and lower not in _HALF_CALLS:
        return _of_type(column, plain)
    advice = f" Write the text as `'{plain}'`, with its quotes." if _WORDS.fullmatch(plain) else ""
    message = f"`{column.name}`: the default `{text[:60]}` is not {KNOWN}.{advice}"
    raise BadRequest(message, remediation="For a value that is computed from other columns, write `generated`.")


def _of_type(column: Column, text: str) -> Any:
    kind = column.type
    if kind.name in ("date", "time") and "T" in text:
        text = text[:10] if kind.name == "date" else text[11:].partition("+")[0]
    if kind.name in ("json", "jsonb") and not kind.array:
        return kind.clean(kind.parse(text, column.name), column.name)
    return kind.parse(text, column.name)
