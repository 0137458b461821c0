"""Tokens of runs: an approval token names a call that waits, a stream token opens one stream of events."""

import hmac
from hashlib import sha256
from typing import Any

from baobab.storage.secrets import Vault

_LENGTH = 40


def approval_token(vault: Vault, run_id: str, approval_id: str) -> str:
    """Returns the token with which a waiting call is decided: computed, never stored, void after the decision."""
    mac = hmac.new(vault.derive("approval token"), f"{run_id}\0{approval_id}".encode(), sha256)
    return "appr_" + mac.hexdigest()[:_LENGTH]


def find_matching_row(vault: Vault, rows: list[Any], token: str) -> Any:
    """Returns the waiting approval that a token names."""
    for row in rows:
        if hmac.compare_digest(approval_token(vault, row.run_id, row.id).encode(), token.encode()):
            return row
    return None
