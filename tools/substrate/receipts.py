"""Receipts: each decided action has one, signed and chained to the one before, which third parties check offline.

A receipt does not hold what an action said, but a salted digest of it: whoever has the payload and the salt can show
that they belong together, and where the action was forgotten, nobody can guess it.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic_core import to_json
from sqlalchemy import insert, update

from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Unit
from baobab.tools.substrate import tables

VERSION = 1
FIRST = "0" * 64
"""What the first receipt has in place of the digest of the one before."""
# Built once, since that takes longer than to run it.
_INSERT = insert(tables.receipts)
_CONTEXT = f"{tables.settings.name}.receipt_key:"


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def open_key(vault: Vault, settings: Any) -> Ed25519PrivateKey | None:
    """Returns the key that signs an organisation's receipts; None before its first receipt."""
    if settings.receipt_key is None:
        return None
    return _open(vault, settings.receipt_key, settings.organisation_id)


@lru_cache(maxsize=256)
def _open(vault: Vault, sealed_key: str, organisation_id: str) -> Ed25519PrivateKey:
    # Remembered, since that takes longer than to sign.
    return Ed25519PrivateKey.from_private_bytes(vault.open(sealed_key, _CONTEXT + organisation_id))


def encode_public_key(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def sign(key: Ed25519PrivateKey, body: bytes) -> str:
    return base64.b64encode(key.sign(body)).decode()


def decode_public_key(text: str) -> Ed25519PublicKey:
    """Returns the public key that a text encodes. Raises ValueError."""
    return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))


async def require_key(unit: Unit, vault: Vault, settings: Any) -> Ed25519PrivateKey:
    """Returns the key that signs receipts, and makes it at the first use. The unit holds the organisation's lock."""
    key = open_key(vault, settings)
    if key is None:
        key = Ed25519PrivateKey.generate()
        sealed_key = vault.seal(key.private_bytes_raw(), _CONTEXT + settings.organisation_id)
        condition = tables.settings.c.organisation_id == settings.organisation_id
        await unit.execute(update(tables.settings).where(condition).values(receipt_key=sealed_key))
    return key


async def write_receipts(
    unit: Unit, vault: Vault, settings: Any, actions: Sequence[Mapping[str, Any]]
) -> tuple[int, str]:
    """Signs a receipt for each of some actions as they now are; the number and the digest of the last receipt."""
    key = await require_key(unit, vault, settings)
    number, previous = settings.last_receipt, settings.last_receipt_digest
    rows = []
    for action in actions:
        number += 1
        salt = secrets.token_hex(16)
        body = to_json(_describe(settings.organisation_id, number, action, salt, previous))
        rows.append(
            {
                "organisation_id": settings.organisation_id,
                "seq": number,
                "action_id": action["id"],
                "body": body.decode(),
                "signature": sign(key, body),
                "salt": salt,
                "created_at": action["updated_at"],
            }
        )
        previous = digest(body)
    if len(rows) == 1:
        await unit.write(_INSERT, rows[0])
    else:
        await unit.execute(_INSERT, rows)
    return number, previous


def _describe(organisation_id: str, number: int, action: Mapping[str, Any], salt: str, previous: str) -> dict[str, Any]:
    result = action["result"] or {}
    return {
        "version": VERSION,
        "organization_id": organisation_id,
        "seq": number,
        "action_id": action["id"],
        "capability": action["capability"],
        "status": action["status"],
        "proposed_by_kind": action["proposed_by_kind"],
        "approved_by_kind": action.get("approved_by_kind"),
        "source_app_id": action["source_app_id"],
        "at": action["updated_at"].isoformat(),
        "reverted": result.get("reverted", []) if isinstance(result, dict) else [],
        "forgotten_calls": result.get("calls", []) if action["capability"] == "forget" else [],
        "payload_sha256": digest_payload(salt, action["payload"]),
        "previous": previous,
    }


def digest_payload(salt: str, payload: Any) -> str:
    """Returns the digest of the salt and of the payload as JSON, in the order in which the ledger has it."""
    # By the call that the documentation tells others to make: `to_json` would write 1e-07 as 1e-7.
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return digest((salt + text).encode())
