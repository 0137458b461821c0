"""Every value that a column takes survives `baobab transfer`: from files to Postgres and back."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from baobab.storage.data.files import FileStore
from baobab.storage.data.postgres import SchemaStore
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import migrate
from baobab.storage.vectors.extension import complete_vectors
from baobab.tools.data.exchange.copying import copy_tables, find_difference, survey_tables
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.servers import start_postgres

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
INTEGERS = {"smallint": 16, "integer": 32, "bigint": 64}
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - the strategy adds no zone
EDGES = (1e15, 1e16, 1e20, 1e22, 1e300, -1e16, -0.0, 1.0, 0.1, 1e-5, 1.5e-7, 5e-324, 10**15, 10**16, 2**63, 10**30)
NUMBERS = st.one_of(st.sampled_from(EDGES), FLOATS, st.integers(-(10**30), 10**30))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXT,
    "varchar(20)": TEXT,
    **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in INTEGERS.items()},
    "real": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double precision": FLOATS,
    "numeric": st.decimals(-(10**20), 10**20, places=10).map(str),
    "numeric(10,2)": st.decimals(-(10**7), 10**7, places=2).map(str),
    "boolean": st.booleans(),
    "uuid": st.uuids().map(str),
    "timestamptz": INSTANTS.map(lambda value: value.replace(tzinfo=UTC).isoformat()),
    "timestamp": INSTANTS.map(datetime.isoformat),
    "date": st.dates().map(date.isoformat),
    "time": st.times().map(time.isoformat),
    "timetz": st.times().map(lambda value: f"{value.isoformat()}+02:00"),
    "interval": st.timedeltas().map(lambda value: f"{value.days} days {value.seconds} seconds"),
    "bytea": st.binary(max_size=20).map(lambda value: f"\\x{value.hex()}"),
    "json": JSON,
    "jsonb": JSON,
    "text[]": st.lists(TEXT, max_size=3),
    "double precision[]": st.lists(FLOATS, max_size=3),
    "bigint[]": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    "vector(2)": st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=2),
}
COLUMNS = {f"c{number}": type_ for number, type_ in enumerate(VALUES)}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), VALUES[type_]) for name, type_ in COLUMNS.items()}),
    min_size=1,
    max_size=8,
)
[JSON_COLUMN] = [name for name, type_ in COLUMNS.items() if type_ == "jsonb"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a database of this version's schema."""
    with start_postgres() as server:
        address = server.create_database("values")
        asyncio.run(_migrate(address))
        yield address


async def _migrate(url: str) -> None:
    database = database_at(url)
    await database.open()
    try:
        await migrate(database)
        await complete_vectors(database)
    finally:
        await database.close()


async def _write(baobab: Baobab, app: str, rows: list[Any]) -> None:
    columns = {"id": {"type": "serial", "primaryKey": True}} | {
        name: {"type": type_} for name, type_ in COLUMNS.items()
    }
    path, body = f"/v1/{app}/schema/apply", {"schema": {"tables": {"t": {"columns": columns}}}}
    response = await baobab.client.post(path, json=body, headers=baobab.owner)
    assert response.status_code == 200, response.text
    response = await baobab.client.post(f"/v1/{app}/t", json=rows, headers=baobab.owner)
    assert response.status_code == 201, response.text


async def _carry(rows: list[Any], url: str, folder: Path) -> None:
    async with open_installation(folder / "data") as baobab:
        app = await baobab.create_app()
        await _write(baobab, app, rows)
        services = baobab.application.services
        source = services.regions[services.options.default_region].data
        database = database_at(url)
        await database.open()
        middle, end = SchemaStore(database), FileStore(folder / "end")
        try:
            await copy_tables(source, middle, app)
            assert await find_difference(source, middle, app, "t") is None
            await copy_tables(middle, end, app)
            assert await find_difference(source, end, app, "t") is None
            surveys = [await survey_tables(store, [app]) for store in (source, middle, end)]
            assert surveys[0] == surveys[1] == surveys[2]
            table = middle.name_table(app, "t")
            await middle.write(app, lambda rows: rows.rows(f"UPDATE {table} SET {JSON_COLUMN} = '1' WHERE id = 1"))  # noqa: S608
            assert await find_difference(source, middle, app, "t") == f"id=1 ({JSON_COLUMN})"
        finally:
            await middle.erase(app)
            await end.close()
            await database.close()


@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None)
@given(rows=ROWS)
@example(rows=[{name: list(EDGES) if type_ in ("json", "jsonb") else None for name, type_ in COLUMNS.items()}])
def test_every_value_survives_the_way_to_postgres_and_back(
    rows: list[Any], url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(_carry(rows, url, tmp_path_factory.mktemp("values")))
