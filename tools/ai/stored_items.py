"""The items of stored responses, which later requests refer to by their ids.

Each item is a row of the response cache beside its response, and expires with it.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import from_json, to_json

from baobab.storage.secrets import SecretUnreadable, Vault
from baobab.storage.sql.database import Database
from baobab.tools.ai import cache_rows


def item_rows(vault: Vault, scope: Sequence[str], items: Any, of_response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Builds the rows of the items that have ids. scope: their owner. of_response: the row of their response."""
    digests = {item_digest(scope, item["id"]): to_json(item) for item in _with_ids(items)}
    return [
        {**of_response, "digest": digest, "size": len(item_json), "answer": vault.seal(item_json, _context(digest))}
        for digest, item_json in sorted(digests.items())
    ]


async def find_items(
    database: Database, vault: Vault, scope: Sequence[str], ids: Iterable[str], now: datetime
) -> dict[str, dict[str, Any]]:
    """Returns the items by their ids, without those that have expired."""
    digests = {item_digest(scope, id_): id_ for id_ in ids}
    items: dict[str, dict[str, Any]] = {}
    for digest, sealed_item in (await cache_rows.find_several(database, list(digests), now)).items():
        try:
            items[digests[digest]] = from_json(vault.open(sealed_item, _context(digest)))
        except SecretUnreadable:
            continue
    return items


def item_digests(scope: Sequence[str], items: Any) -> list[str]:
    return [item_digest(scope, item["id"]) for item in _with_ids(items)]


def item_digest(scope: Sequence[str], id_: str) -> str:
    """Returns the key of an item's row; it contains the owner, so that nobody else finds it by its id."""
    return hashlib.sha256(to_json(("response item", *scope, id_))).hexdigest()


def _with_ids(items: Any) -> list[dict[str, Any]]:
    item_list = items if isinstance(items, list) else []
    return [item for item in item_list if isinstance(item, dict) and isinstance(item.get("id"), str)]


def _context(digest: str) -> str:
    """Returns the context that a sealed item is bound to, so that a copy in another row cannot be opened."""
    return f"response_cache.item:{digest}"
