"""Signatures of webhooks that functions get, as their senders make them."""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from pydantic_core import from_json

from baobab.runtime.net.webhooks import is_signed
from baobab.tools.functions.trigger_configs import OWN_SIGNATURE_HEADER

_NUMBER = re.compile(r"[0-9]{1,12}", re.ASCII)
_PREFIX = "whsec_"
_LONGEST_ID = 255


def verify(
    config: Mapping[str, Any], secret: str | None, headers: Mapping[str, str], body: bytes, now: datetime
) -> bool:
    """Returns whether a webhook was signed with the trigger's secret. headers: by name in lower case."""
    provider = config["provider"]
    if provider is None and not config["secret_required"]:
        return True
    if secret is None:
        return False
    if provider == "stripe":
        return _is_of_stripe(secret, headers.get("stripe-signature", ""), body, now, config["tolerance_seconds"])
    if provider == "github":
        return _is_digest(secret, headers.get("x-hub-signature-256", ""), body, needs_prefix=True)
    if provider == "custom":
        return _is_digest(secret, headers.get(config["signature_header"], ""), body, needs_prefix=False)
    return _is_own(secret, headers, body, now)


def _is_of_stripe(secret: str, header: str, body: bytes, now: datetime, tolerance_seconds: int) -> bool:
    pairs = [part.strip().partition("=") for part in header.split(",")]
    timestamps = [value for name, _, value in pairs if name == "t"]
    if len(timestamps) != 1 or not _NUMBER.fullmatch(timestamps[0]):
        return False
    if abs(now.timestamp() - int(timestamps[0])) > tolerance_seconds:
        return False
    expected_signature = hmac.new(secret.encode(), timestamps[0].encode() + b"." + body, sha256).hexdigest()
    # There are several while a secret is being replaced.
    signatures = [value for name, _, value in pairs if name == "v1"]
    return any(hmac.compare_digest(expected_signature.encode(), each.encode()) for each in signatures)


def _is_digest(secret: str, header: str, body: bytes, *, needs_prefix: bool) -> bool:
    text = header.strip()
    if text.startswith("sha256="):
        text = text.removeprefix("sha256=")
    elif needs_prefix:
        return False
    expected_signature = hmac.new(secret.encode(), body, sha256).hexdigest()
    return hmac.compare_digest(expected_signature.encode(), text.lower().encode())


def _is_own(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Returns whether a webhook has the signature of a generated secret: `v1,` and the HMAC of the body in base64, in
    `x-bb-signature`; or the headers of standardwebhooks.com.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = secret.encode()
    header = headers.get(OWN_SIGNATURE_HEADER)
    if header is None:
        return secret.startswith(_PREFIX) and is_signed(secret, headers, body, now)
    expected_signature = "v1," + base64.b64encode(hmac.new(key, body, sha256).digest()).decode()
    return any(hmac.compare_digest(expected_signature.encode(), each.encode()) for each in header.split())


def find_delivery_digest(config: Mapping[str, Any], headers: Mapping[str, str], body: bytes) -> str:
    """Returns what two deliveries of the same webhook have in common: the sender's id of it, else the body."""
    name, value = "body", ""
    if config["idempotency_key_header"] is not None:
        name, value = "header", headers.get(config["idempotency_key_header"], "")
    elif config["provider"] == "github":
        name, value = "github", headers.get("x-github-delivery", "")
    elif config["provider"] == "stripe":
        name, value = "stripe", _read_id(body)
    elif config["provider"] is None:
        name, value = "webhook", headers.get("webhook-id", "")
    if not value:
        return sha256(b"body\0" + body).hexdigest()
    return sha256(f"{name}\0{value[:_LONGEST_ID]}".encode()).hexdigest()


def _read_id(body: bytes) -> str:
    try:
        event = from_json(body)
    except ValueError:
        return ""
    event_id = event.get("id") if isinstance(event, dict) else None
    return event_id if isinstance(event_id, str) else ""
