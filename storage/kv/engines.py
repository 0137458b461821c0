"""Which engine keeps the key-value store, by the addresses of an installation."""

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
    """Beside the rows, in their Postgres or in files in a folder; in Valkey, where there is one, what may be lost, or
    with `durable` all of it. It is not open yet.
    """
    # Their drivers cost what an embedded start need not pay.
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
