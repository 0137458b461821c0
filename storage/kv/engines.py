"""Chooses the key-value engine by the addresses of an installation."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from baobab.storage.kv.engine import Engine
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.sql.databases import POSTGRES


def engine_at(
    folder: Path,
    rows_url: str,
    valkey_url: str,
    clock: Callable[[], float],
    kv: Literal["database", "valkey"] = "database",
) -> Engine:
    """Returns the engine for these addresses, not open yet.

    kv: whether both tiers are beside the rows, in their Postgres or in files in the folder, or in Valkey.
    """
    # Imported only if needed, because the drivers take time to load.
    if kv == "valkey":
        from baobab.storage.kv.valkey.engine import ValkeyEngine

        return ValkeyEngine(valkey_url, clock)
    if rows_url.startswith(POSTGRES):
        from baobab.storage.kv.postgres.engine import PostgresEngine

        return PostgresEngine(rows_url, clock)
    return SqliteEngine(folder, clock=clock)
