"""The items of stored responses, found by their own ids: requests refer to what a model has said before.

Each is a kept answer beside its response, with which it ends.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import from_json, to_json

from baobab.storage.database import Database
from baobab.storage.secrets import SecretUnreadable, Vault
from baobab.tools.ai import cache_rows


def item_rows(vault: Vault, scope: Sequence[str], items: Any, of_response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the items that have ids. scope: whose they are. of_response: the row of their response."""
    digests = {item_digest(scope, item["id"]): to_json(item) for item in _with_ids(items)}
    return [
        {**of_response, "digest": digest, "size": len(plain), "answer": vault.seal(plain, _context(digest))}
        for digest, plain in sorted(digests.items())
    ]


async def find_items(
    database: Database, vault: Vault, scope: Sequence[str], ids: Iterable[str], now: datetime
) -> dict[str, dict[str, Any]]:
    """The items by their ids; those that are not kept any more are missing."""
    digests = {item_digest(scope, id_): id_ for id_ in ids}
    found: dict[str, dict[str, Any]] = {}
    for digest, sealed in (await cache_rows.find_several(database, list(digests), now)).items():
        try:
            found[digests[digest]] = from_json(vault.open(sealed, _context(digest)))
        except SecretUnreadable:
            continue
    return found


def item_digests(scope: Sequence[str], items: Any) -> list[str]:
    return [item_digest(scope, item["id"]) for item in _with_ids(items)]


def item_digest(scope: Sequence[str], id_: str) -> str:
    """Where an item stands: nobody else finds it by its id."""
    return hashlib.sha256(to_json(("response item", *scope, id_))).hexdigest()


def _with_ids(items: Any) -> list[dict[str, Any]]:
    found = items if isinstance(items, list) else []
    return [item for item in found if isinstance(item, dict) and isinstance(item.get("id"), str)]


def _context(digest: str) -> str:
    """What a sealed item is bound to: copied to another row it does not open."""
    return f"response_cache.item:{digest}"
