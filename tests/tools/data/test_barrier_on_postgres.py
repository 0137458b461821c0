"""On Postgres, nothing that a caller asks for is evaluated on hidden rows, also where its row-level security is off.

The operators that filters need are shadowed by ones that fail on a value of the hidden row, as a cast or a division in
a filter would: whatever evaluates them there answers an error.
"""

from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import psycopg
import pytest
import pytest_asyncio

from baobab.server import Server
from baobab.settings import load_settings
from tests.conftest import KEY
from tests.http.installation import Installation
from tests.servers import start_postgres
from tests.tools.data.conftest import Tables
from tests.tools.data.test_barrier import HIDDEN, PLACES, POLICIES, open_secrets

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.on_files]

OPERATORS = {
    # Name, type of the left and of the right side: type of the result, function of Postgres.
    ("~~", "text", "text"): ("boolean", "textlike"),
    ("@@", "tsvector", "tsquery"): ("boolean", "ts_match_vq"),
    ("@>", "jsonb", "jsonb"): ("boolean", "jsonb_contains"),
    ("<@", "jsonb", "jsonb"): ("boolean", "jsonb_contained"),
    ("@>", "text[]", "text[]"): ("boolean", "arraycontains"),
    ("<@", "text[]", "text[]"): ("boolean", "arraycontained"),
    ("&&", "text[]", "text[]"): ("boolean", "arrayoverlap"),
    ("->>", "jsonb", "text"): ("text", "jsonb_object_field_text"),
}
FILTERS = [
    "body=like.*e*",
    "body=ilike.*E*",
    "body=wfts.seen",
    'data=cs.{"a":"seen"}',
    'data=cd.{"a":"seen"}',
    "tags=cs.{seen}",
    "tags=cd.{seen}",
    "tags=ov.{seen}",
    "data->>a=eq.seen",
    "or=(body.like.*e*,code.eq.x)",
    f"code=eq.{HIDDEN}&body=wfts.seen",
    "id=eq.2&body=ilike.*e*",
]


def _write_traps() -> Iterator[str]:
    for number, ((name, left, right), (result, function)) in enumerate(OPERATORS.items()):
        yield (
            # A low cost makes the planner evaluate it before anything that it may exchange with it.
            f"CREATE FUNCTION trap_{number}({left}, {right}) RETURNS {result} IMMUTABLE COST 0.0001 LANGUAGE plpgsql"
            f" AS $$ BEGIN"
            f" IF strpos($1::text, '{HIDDEN}') > 0 THEN RAISE 'evaluated' USING ERRCODE = 'division_by_zero'; END IF;"
            f" RETURN {function}($1, $2); END $$"
        )
        yield f"CREATE OPERATOR {name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = trap_{number})"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    with start_postgres() as postgres:
        url = postgres.create_database("unguarded")
        with psycopg.connect(postgres.url("unguarded"), autocommit=True) as connection:
            connection.execute("ALTER DATABASE unguarded SET search_path = public, pg_catalog")
            for statement in _write_traps():
                connection.execute(statement.encode())
        settings = {"BAOBAB_DATABASE_URL": url, "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise"}
        folder = tmp_path_factory.mktemp("unguarded")
        server = Server(load_settings({**settings, "BAOBAB_ROW_SECURITY": "false"}, data=folder))
        async with server.open() as application:
            yield Installation(server, application)


@pytest.mark.parametrize("policy", POLICIES)
async def test_no_read_and_no_write_by_filter_fails_on_a_hidden_row(tables: Tables, policy: str) -> None:
    ada = await open_secrets(tables, policy)
    for filters in FILTERS:
        for place, write in PLACES.items():
            path = f"/{quote(write(filters), safe='?=&')}"
            answer = await tables.ask("GET", path, None, ada, prefer="count=exact")
            assert answer.status in (200, 206), (place, filters, answer.content)
            assert HIDDEN not in str(answer.json), (place, filters)
        path = f"/secrets?{quote(filters, safe='?=&')}"
        for method, body in (("PATCH", {"shown": False}), ("DELETE", None)):
            # A note refers to the row that is deleted.
            answer = await tables.ask(method, path, body, ada)
            assert answer.status == 200 or (method == "DELETE" and b"notes" in answer.content), (filters, answer)
        # Whoever may see the row meets the trap: the filter is evaluated by it.
        assert (await tables.ask("GET", path)).status not in (200, 206), filters
