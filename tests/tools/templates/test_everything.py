"""An app in which every tool has been used is cloned, and each table compared with the lists of docs/templates.md."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Table, func, select, update

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.storage.sql.tables import metadata
from baobab.tools.core.auth.tables import apps
from baobab.tools.data.schema.catalogue import read_catalogue
from baobab.tools.templates.new_copy import COPIED, WITHHELD
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation, reset_rate_limits
from tests.jobs import run_due_jobs
from tests.people import create_person
from tests.tools.access import World, load_policy, open_world
from tests.tools.templates.conftest import NOTES, Gallery
from tests.tools.templates.test_declarations import COPIED_NAMES, NEVER_NAMES, find_tables_of_apps

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long_file]

CALLERS = ("app key", "owner", "owner's key")
OF_ITS_OWN = {"clone_origins", "events", "audit_logs", "api_keys", "signing_keys"}
"""Tables in which a copy has rows of its own, and none of the source's."""


@dataclass
class Pair:
    baobab: Baobab
    source: str
    copy: str

    async def count(self, table: Table, app_id: str) -> int:
        column = next((table.c[name] for name in ("app_id", "owner", "id") if name in table.c), None)
        if column is None:
            return 0
        async with self.baobab.application.services.database.reading() as connection:
            query = select(func.count()).select_from(table).where(column == app_id)
            return int((await connection.execute(query)).scalar_one())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """An app in which every tool has been used, and its clone by a stranger."""
    clock = FixedClock()
    settings = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
    async with (
        open_installation(tmp_path_factory.mktemp("used"), settings, clock=clock) as baobab,
        open_world(baobab) as world,
    ):
        registry = baobab.application.registry
        for tool in sorted(load_policy(), key=lambda name: registry.find(name).effect != "destructive"):
            reset_rate_limits(baobab.application.services)
            for caller in CALLERS:
                if await world.call_tool(tool, world.callers[caller]) == "ok":
                    break
        await run_due_jobs(baobab.application)
        reset_rate_limits(baobab.application.services)
        gallery = Gallery(baobab, clock, await create_person(baobab, "cloner"))
        await fill_what_is_copied(world, gallery)
        copy = await gallery.clone(world.app, name="copy")
        yield Pair(baobab, world.app, copy)


async def fill_what_is_copied(world: World, gallery: Gallery) -> None:
    """Makes sure that there is a row of each kind that is copied, and offers the app."""
    owner, path = world.callers["owner"].headers, f"/v1/{world.app}"
    tables = {"seeds": {**NOTES, "_seed": True}}
    schedule = {"event": "schedule", "schedule": "0 * * * *", "webhook": "https://h.example/x"}
    document = {"text": "A seed.", "metadata": {"_seed": True}}
    for method, place, body in (
        ("POST", "schema/apply", {"schema": {"tables": tables}, "mode": "merge"}),
        ("POST", "seeds", {"id": 1, "text": "seed"}),
        ("POST", "rag/collections", {"name": "seeds"}),
        ("POST", "rag/collections/seeds/ingest", document),
        ("PATCH", "auth/settings", {"colour": "#1d4ed8"}),
        ("PUT", "triggers/hourly", schedule),
        ("POST", "functions", {"name": "greet", "code": "export default () => new Response('hi')"}),
        ("POST", "frontend/deployments/files", {"files": {"index.html": "<h1>Hi</h1>"}}),
    ):
        await gallery.do(method, f"{path}/{place}", body, owner)
    await run_due_jobs(gallery.baobab.application)
    async with gallery.baobab.application.services.database.writing() as connection:
        offer = {"visibility": "public", "allowed_origins": ["https://shop.example"], "user_tools": ["kv_get"]}
        await connection.execute(update(apps).where(apps.c.id == world.app).values(**offer))
        latest = select(metadata.tables["repo_snapshots"].c.id).where(
            metadata.tables["repo_snapshots"].c.app_id == world.app
        )
        snapshot = await connection.scalar(latest)
        assert snapshot is not None
        await connection.execute(update(apps).where(apps.c.id == world.app).values(repo_latest_snapshot=snapshot))


async def test_the_clone_has_rows_of_each_table_that_is_copied(pair: Pair) -> None:
    empty: dict[str, tuple[int, int]] = {}
    for name, table in find_tables_of_apps().items():
        if name in COPIED_NAMES:
            counts = (await pair.count(table, pair.source), await pair.count(table, pair.copy))
            if 0 in counts or counts[1] > counts[0]:
                empty[name] = counts
    assert empty == {}


async def test_the_clone_has_no_row_of_a_table_that_is_never_copied(pair: Pair) -> None:
    found_counts: dict[str, int] = {}
    for name, table in find_tables_of_apps().items():
        if name in NEVER_NAMES - OF_ITS_OWN and (count := await pair.count(table, pair.copy)):
            found_counts[name] = count
    assert found_counts == {}


async def test_the_app_itself_has_the_settings_that_are_copied_and_no_others(pair: Pair) -> None:
    async with pair.baobab.application.services.database.reading() as connection:
        query = select(apps).where(apps.c.id.in_((pair.source, pair.copy)))
        rows: dict[str, Any] = {row["id"]: row for row in (await connection.execute(query)).mappings()}
    source, copy = rows[pair.source], rows[pair.copy]
    assert {name: copy[name] for name in COPIED} == {name: source[name] for name in COPIED}
    assert [copy[name] for name in WITHHELD] == [[], None, []]
    for name in (
        "organisation_id",
        "name",
        "subdomain",
        "anon_key",
        "function_key",
        "function_key_digest",
        "visibility",
    ):
        assert copy[name] != source[name], name
    assert (copy["template_source_app_id"], copy["substrate_organization_id"]) == (pair.source, None)


def count_rows(store: DataStore, app: str, statements: Statements) -> dict[str, int]:
    catalogue = read_catalogue(statements, store, app)
    return {
        name: statements.rows(f"SELECT count(*) FROM {store.name_table(app, name)}")[0][0]  # noqa: S608 - our own names
        for name in catalogue.tables
    }


async def test_the_clone_has_the_marked_rows_and_no_others_and_no_key(pair: Pair) -> None:
    stores = pair.baobab.application.services.regions["local"]
    tables = {
        app: await stores.data.read(app, partial(count_rows, stores.data, app)) for app in (pair.source, pair.copy)
    }
    assert tables[pair.copy].keys() == tables[pair.source].keys()
    assert {name: count for name, count in tables[pair.copy].items() if count} == {"seeds": 1}
    assert (await stores.kv.usage(pair.source)).keys > 0
    assert (await stores.kv.usage(pair.copy)).keys == 0
    objects = await stores.objects.list(f"{pair.copy}/", "", 1000)
    rooms = {key.split("/")[1] for key in objects}
    assert "repo" in rooms
    assert rooms <= {"repo", "sites"}, rooms
