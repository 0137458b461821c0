"""Which engine the settings choose."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest

from baobab.storage.kv.engine import Engine
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.valkey.engine import ValkeyEngine


@pytest.mark.parametrize(
    ("rows", "valkey", "kv", "kind"),
    [
        ("sqlite:///rows.db", "", "database", SqliteEngine),
        ("postgresql://db/rows", "", "database", PostgresEngine),
        ("sqlite:///rows.db", "redis://valkey", "database", SqliteEngine),
        ("postgresql://db/rows", "redis://valkey", "database", PostgresEngine),
        ("sqlite:///rows.db", "redis://valkey", "valkey", ValkeyEngine),
        ("postgresql://db/rows", "redis://valkey", "valkey", ValkeyEngine),
    ],
)
def test_addresses_choose_the_engine(
    tmp_path: Path, rows: str, valkey: str, kv: Literal["database", "valkey"], kind: type[Engine]
) -> None:
    assert type(engine_at(tmp_path, rows, valkey, time.time, kv)) is kind
