"""Cursors: opaque to callers, bound to the list that gave them, and refused when altered."""

import base64
import binascii
import hashlib
import hmac
import json
from typing import Annotated, Any

from pydantic import Field

from baobab.storage.secrets import Vault
from baobab.tools.core.errors import BadRequest
from baobab.tools.core.types import Text

_TAG = 12


class CursorInvalid(BadRequest):
    summary = "The cursor does not come from this list."
    remediation = "Start again without `cursor`, and send the cursor of each answer back as `cursor`, unchanged."


Cursor = Annotated[
    str, Text(1024, min_length=1), Field(description="Where to continue: the cursor of the previous page.")
]
PageSize = Annotated[int, Field(ge=1, le=500, description="Entries in one page.")]


def encode_cursor(vault: Vault, of: str, *position: str) -> str:
    """Returns a cursor for the position after which the next page begins. of: the list that it belongs to."""
    body = json.dumps(position, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_tag(vault, of, body) + body).decode().rstrip("=")


def decode_cursor(vault: Vault, of: str, cursor: str) -> list[Any]:
    """Returns the position that `encode_cursor` was given for the same list. Raises CursorInvalid."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (ValueError, binascii.Error) as exc:
        raise CursorInvalid from exc
    tag, body = raw[:_TAG], raw[_TAG:]
    if not hmac.compare_digest(tag, _tag(vault, of, body)):
        raise CursorInvalid
    position: list[Any] = json.loads(body)
    return position


def _tag(vault: Vault, of: str, body: bytes) -> bytes:
    key = vault.derive("cursor")
    return hmac.new(key, of.encode() + b"\0" + body, hashlib.sha256).digest()[:_TAG]
