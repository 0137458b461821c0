"""Signatures of webhooks, as standardwebhooks.com specifies them."""

import base64
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256

from baobab.storage.clock import Ids

_PREFIX = "whsec_"
_LENGTH = 40
_TOLERANCE_SECONDS, _LONGEST_TIMESTAMP = 300, 16


def new_secret(ids: Ids) -> str:
    """Returns a new secret, in the form that libraries of receivers take."""
    return _PREFIX + base64.b64encode(ids.secret(_LENGTH).encode()).decode()


def build_headers(event_id: str, sent_at: datetime, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """Returns the headers of a webhook, with one signature for each secret; without a secret it is not signed."""
    headers = {"content-type": "application/json", "webhook-id": event_id}
    headers["webhook-timestamp"] = str(int(sent_at.timestamp()))
    if secrets:
        headers["webhook-signature"] = " ".join(sign(secret, headers, body) for secret in secrets)
    return headers


def sign(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    """Computes one signature. headers: with the webhook's id and timestamp."""
    signed_content = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return "v1," + base64.b64encode(hmac.new(key, signed_content, sha256).digest()).decode()


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Returns whether a webhook was signed with a secret, in the last five minutes.

    headers: by name in lower case, under the standard's names or under those that came before it, `svix-...`.
    """
    for prefix in ("webhook", "svix"):
        names = (f"{prefix}-id", f"{prefix}-timestamp", f"{prefix}-signature")
        if all(headers.get(name) for name in names):
            event_id, timestamp, signatures = (headers[name] for name in names)
            is_recent = timestamp.isascii() and timestamp.isdigit() and len(timestamp) < _LONGEST_TIMESTAMP
            if not is_recent or abs(now.timestamp() - int(timestamp)) > _TOLERANCE_SECONDS:
                return False
            own_signature = sign(secret, {"webhook-id": event_id, "webhook-timestamp": timestamp}, body)
            # Each is compared in constant time: there are several while a secret is being replaced.
            return any(hmac.compare_digest(own_signature.encode(), each.encode()) for each in signatures.split())
    return False
