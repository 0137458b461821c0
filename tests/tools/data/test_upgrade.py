"""An app's tables that an earlier version made are completed when a server starts."""

import asyncio

import pytest

from baobab.storage.sql.statements import Statements
from baobab.tools.data.history.usage import Counter
from baobab.tools.data.migration.own_tables import upgrade_databases
from baobab.tools.data.schema.catalogue import read_catalogue
from tests.tools.data.conftest import POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

_LATER = ("_usage", "_changes", "_presence", "_messages", "_slow_statements", "_outside_rows")
"""What the first version with tables did not make."""


async def test_tables_of_an_earlier_version_take_writes_count_them_and_can_be_undone(tables: Tables) -> None:
    app_id, services = tables.app.id, tables.world.application.services
    store = services.regions[services.options.default_region].data
    await tables.apply({"posts": POSTS})
    await tables.insert("posts", {"title": "old"})

    def downgrade(statements: Statements) -> None:
        counter = Counter(statements, store, app_id)
        for table in read_catalogue(statements, store, app_id).tables.values():
            counter.stop(table)
        for name in _LATER:
            statements.rows(f"DROP TABLE {store.name_table(app_id, name)}")
        keys = store.name_table(app_id, "_idempotency_keys")
        for column in ("digest", "at", "action"):
            statements.rows(f"ALTER TABLE {keys} DROP COLUMN {column}")
        for column in ("guard", "channels"):
            statements.rows(f"ALTER TABLE {store.name_table(app_id, '_catalogue')} DROP COLUMN {column}")

    await store.alter(app_id, downgrade)
    assert (await tables.ask("POST", "/posts", {"title": "refused"})).status >= 500
    # Two servers that start at the same time.
    await asyncio.gather(upgrade_databases(store), upgrade_databases(store))
    [new] = await tables.insert("posts", {"title": "new"})
    [change] = (await tables.ask("GET", "/data-changes")).json["changes"]
    assert (await tables.ask("DELETE", f"/posts/{new['id']}")).status < 300
    assert [row["title"] for row in await tables.list("posts?select=title")] == ["old"]
    assert change["table"] == "posts"
    batch = {"writes": [{"op": "insert", "table": "posts", "values": {"title": "once"}}]}
    answers = [await tables.ask("POST", "/data-batch", batch, idempotency_key="one") for _ in range(2)]
    assert answers[0].json == answers[1].json
