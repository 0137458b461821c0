"""One-time codes of an authenticator app (RFC 6238): six digits by HMAC-SHA-1, anew every 30 seconds."""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime
from urllib.parse import quote, urlencode

DIGITS = 6
PERIOD_SECONDS = 30
_SECRET_BYTES = 20
_DRIFT = 1
"""Periods by which the clock of a phone may be wrong."""


def create_secret() -> str:
    """Returns a new secret in base32, as authenticator apps take it."""
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def compute_code(secret: str, period: int) -> str:
    """Returns the code of a period, which counts from 1970."""
    digest = hmac.new(base64.b32decode(secret), period.to_bytes(8, "big"), hashlib.sha1).digest()
    start = digest[-1] & 0x0F
    number = int.from_bytes(digest[start : start + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def find_period(secret: str, code: str, now: datetime, last: int | None) -> int | None:
    """Returns the period whose code this is, now or one period off; None if it is none, or not later than `last`."""
    present = int(now.timestamp()) // PERIOD_SECONDS
    matching_period = None
    for period in range(present - _DRIFT, present + _DRIFT + 1):
        if hmac.compare_digest(compute_code(secret, period).encode(), code.encode()) and (
            last is None or period > last
        ):
            matching_period = period
    return matching_period


def build_uri(secret: str, app_name: str, account: str) -> str:
    """Returns the `otpauth:` address that authenticator apps read from a QR code."""
    query = urlencode(
        {"secret": secret, "issuer": app_name, "digits": DIGITS, "period": PERIOD_SECONDS}, quote_via=quote
    )
    return f"otpauth://totp/{quote(app_name.replace(':', ' '), safe='')}:{quote(account, safe='@')}?{query}"
