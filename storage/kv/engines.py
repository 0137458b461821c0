"""Chooses the key-value engine by the addresses of an installation."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from baobab.storage.databases import POSTGRES
from baobab.storage.kv.engine import Engine
from baobab.storage.kv.sqlite import SqliteEngine


def engine_at(
    folder: Path,
    rows_url: str,
    valkey_url: str,
    clock: Callable[[], float],
    durable: Literal["database", "valkey"] = "database",
) -> Engine:
    """Returns the engine for these addresses, not open yet.

    Entries are stored beside the rows: in their Postgres, or in files in a folder. With Valkey, it holds the ephemeral
    tier; with `durable="valkey"` it holds everything.
    """
    # Imported only if needed, because the drivers take time to load.
    if valkey_url and durable == "valkey":
        from baobab.storage.kv.valkey.engine import ValkeyEngine

        return ValkeyEngine(valkey_url, clock)
    if valkey_url:
        from baobab.storage.kv.tiered.engine import TieredEngine

        if rows_url.startswith(POSTGRES):
            from baobab.storage.kv.tiered.postgres import PostgresDurableEngine

            return TieredEngine(PostgresDurableEngine(rows_url, clock), valkey_url, clock)
        from baobab.storage.kv.tiered.sqlite import SqliteDurableEngine

        return TieredEngine(SqliteDurableEngine(folder, clock), valkey_url, clock)
    if rows_url.startswith(POSTGRES):
        from baobab.storage.kv.postgres.engine import PostgresEngine

        return PostgresEngine(rows_url, clock)
    return SqliteEngine(folder, clock=clock)
