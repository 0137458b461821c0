"""The types of keys and values, with their validation."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from baobab.tools.core import NotSecret
from baobab.tools.core.guard.titles import is_plain
from baobab.tools.core.guard.wording import list_texts
from baobab.tools.core.types import encode_json
from baobab.tools.kv.errors import MAX_VALUE_BYTES, KeyInvalid, KeySegmentEmpty, ValueTooLarge

MAX_KEY = 512
_PRINTABLE = re.compile(r"[\x20-\x7e]+")
# Nearly every key matches this and needs no other check: no `/`, so no segments, and no reserved start.
_PLAIN = re.compile(rf"[A-Za-z0-9][\x20-\x2e\x30-\x7e]{{0,{MAX_KEY - 1}}}")


def check_key(key: str) -> str:
    """Returns the key itself. Raises KeySegmentEmpty or KeyInvalid if it is not valid."""
    if _PLAIN.fullmatch(key):
        return key
    segments = key.split("/")
    if "" in segments:
        raise KeySegmentEmpty
    if len(key) > MAX_KEY:
        raise KeyInvalid(f"The key is longer than {MAX_KEY} bytes.")
    if not _PRINTABLE.fullmatch(key):
        raise KeyInvalid("The key has characters other than printable ASCII.")
    if key[0] == "_":
        raise KeyInvalid("Keys that start with `_` are reserved.")
    if "." in segments or ".." in segments:
        raise KeyInvalid("`.` and `..` cannot be segments of a key.")
    return key


def encode_value(value: Any) -> bytes:
    raw = encode_json(value)
    if len(raw) > MAX_VALUE_BYTES:
        raise ValueTooLarge(len(raw))
    return raw


Key = Annotated[
    str,
    AfterValidator(check_key),
    NotSecret("the name of an entry"),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_KEY}),
    Field(description="Printable ASCII; may hold `/`; must not start with `_`.", examples=["user:42:cart"]),
]
Value = Annotated[
    Any, AfterValidator(encode_value), WithJsonSchema({}), Field(description="Any JSON value of up to 256 KB.")
]


def name_keys(keys: Sequence[object], *, is_final: bool) -> str:
    """Names the keys of a call for its title. is_final: whether the call deletes: then keys that are no plain names are
    only counted.
    """
    if is_final and not all(is_plain(str(key)) for key in keys):
        return "one key" if len(keys) == 1 else f"{len(keys)} keys"
    return f"the {'key' if len(keys) == 1 else 'keys'} {list_texts(keys)}"
