"""Which engine keeps the key-value store, by the addresses of an installation."""

from collections.abc import Callable
from pathlib import Path

from baobab.storage.databases import POSTGRES
from baobab.storage.kv.engine import Engine
from baobab.storage.kv.sqlite import SqliteEngine


def engine_at(folder: Path, rows_url: str, valkey_url: str, clock: Callable[[], float]) -> Engine:
    """Valkey where there is one, else the Postgres that has the rows, else files in a folder. It is not open yet."""
    # Their drivers cost what an embedded start need not pay.
    if valkey_url:
        from baobab.storage.kv.valkey.engine import ValkeyEngine

        return ValkeyEngine(valkey_url, clock)
    if rows_url.startswith(POSTGRES):
        from baobab.storage.kv.postgres.engine import PostgresEngine

        return PostgresEngine(rows_url, clock)
    return SqliteEngine(folder, clock=clock)
