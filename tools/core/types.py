"""Types that carry their constraints: what a handler receives needs no second look."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from unicodedata import normalize

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, StringConstraints, WithJsonSchema
from pydantic_core import CoreSchema, core_schema, from_json, to_json

from baobab.tools.core.guard.escaping import is_seen

OMITTED: Any = object()
"""The default of a parameter whose absence means something else than null."""


class DefaultBy:
    """Other defaults of an argument, by the interface that a call comes in through: `Annotated[Mode,
    DefaultBy(mcp="merge")]`. The default in the signature is for all others, and for calls of one tool by another.
    """

    def __init__(self, **values: Any) -> None:
        self.values = values


_JSON_SUSPECTS = re.compile(rb"\\u0000|NaN|Infinity")
_NUMBER = re.compile(r"\s*[-+]?[0-9.]+\s*")


def without_nul(text: str) -> str:
    """Returns a text unchanged. Raises ValueError if it contains a NUL character."""
    # No database text column and no C string holds it; refusing it here keeps every store alike.
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    return text


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most `max_length` characters, none of them NUL by default: `Annotated[str, Text(100)]`."""

    max_length: int
    min_length: int = 0
    pattern: str | None = None
    nul: bool = False
    """Whether it may hold NUL: for what is passed on, and never stored as it is."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(
            strict=True, max_length=self.max_length, min_length=self.min_length or None, pattern=self.pattern
        )
        return text if self.nul else core_schema.no_info_after_validator_function(without_nul, text)


@dataclass(frozen=True, slots=True)
class NameText(Text):
    """A name by which people tell things apart: text on one line, in which every character is visible and in order."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = Text.__get_pydantic_core_schema__(self, source, handler)
        return core_schema.no_info_after_validator_function(_check_visible, text)


def _check_visible(name: str) -> str:
    for character in name:
        if not is_seen(character):
            raise ValueError(f"must not contain the invisible character U+{ord(character):04X}")
    return name


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError("must be a moment between the years 1 and 9999, in UTC") from exc


def _require_iso(value: Any) -> Any:
    """Refuses the numbers that Pydantic would read as seconds since 1970."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return value
    if isinstance(value, datetime):
        return value
    raise ValueError("must be a time such as 2027-05-01T00:00:00Z")


Moment = Annotated[datetime, Field(strict=False), BeforeValidator(_require_iso), AfterValidator(_utc)]
"""An ISO 8601 time, UTC where it names no zone."""


def parse_json(text: bytes | str) -> Any:
    """Parses what somebody has sent. Raises ValueError for everything that is not JSON, and for an infinite number.

    The parser refuses NaN and Infinity, but reads a number that is too large, such as 1e400, as infinite.
    """
    # Parsers differ on repeated fields: here the last one wins, as in JavaScript.
    value = from_json(text, allow_inf_nan=False)
    pending = [value]
    # The list grows while it is read. A recursive function, or a search of the text, takes longer.
    for inner in pending:
        kind = type(inner)
        if kind is dict:
            pending.extend(inner.values())
        elif kind is list:
            pending.extend(inner)
        elif kind is float and math.isinf(inner):
            raise ValueError("number out of range")
    return value


def encode_json(value: Any) -> bytes:
    """Returns the compact JSON text of a value. Raises ValueError for what JSON or a store cannot hold."""
    raw = to_json(value, inf_nan_mode="constants")
    if _JSON_SUSPECTS.search(raw):
        _check_json(value)
    return raw


def _check_json(value: Any) -> None:
    match value:
        case str():
            without_nul(value)
        case float():
            if not math.isfinite(value):
                raise ValueError("must not contain NaN or Infinity")
        case dict():
            for name, item in value.items():
                without_nul(name)
                _check_json(item)
        case list():
            for item in value:
                _check_json(item)


def _storable(value: Any) -> Any:
    encode_json(value)
    return value


Json = Annotated[Any, AfterValidator(_storable), WithJsonSchema({})]
"""Any JSON value."""

JsonObject = Annotated[dict[str, Any], AfterValidator(_storable), WithJsonSchema({"type": "object"})]

AnyJsonObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
"""A JSON object of whatever texts: NUL too, as tools read it from files. Not for what is stored as text or JSON."""

APP_ID = r"^app_[0-9a-z]{6,32}$"
AppId = Annotated[
    str, StringConstraints(pattern=APP_ID, max_length=36), Field(description="The app.", examples=["app_1a2b3c4d5e6f"])
]
Uuid = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", max_length=36),
    Field(examples=["0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"]),
]


def _normalise_address(value: str) -> str:
    """Returns the one spelling of an address: accented letters as one character each, and no invisible characters."""
    address = normalize("NFC", value)
    if not all(map(is_seen, address)):
        raise ValueError("has characters that cannot be seen")
    return address


_ADDRESS = r'[^@\s\x00<>()\[\]\\,;:"]'
"""A character of an address, on either side of the `@`. Without the marks of mail headers: `<a@x.example>` would be a
second spelling of the mailbox `a@x.example`.
"""
Email = Annotated[
    str,
    StringConstraints(pattern=rf"^{_ADDRESS}{{1,64}}@{_ADDRESS}{{1,185}}$", max_length=250, to_lower=True),
    AfterValidator(_normalise_address),
    Field(description="An e-mail address.", examples=["ada@example.com"], json_schema_extra={"format": "email"}),
]
