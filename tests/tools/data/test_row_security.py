"""On Postgres, its own row-level security guards the rows of others even where the conditions of a statement do not."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings

from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.data.files import FileStore
from baobab.storage.data.row_security import Job
from baobab.storage.data.store import DataStore
from baobab.storage.sql.database import PrivilegeRefused
from baobab.storage.sql.statements import Statements
from baobab.tools.data.exchange.copying import copy_tables
from baobab.tools.data.rows.row_security import lower_guard
from baobab.tools.data.schema.catalogue import Catalogues, Expression, read_catalogue, write_catalogue
from tests.conftest import KEY
from tests.http.installation import Answer, Installation
from tests.jobs import run_job
from tests.servers import PostgresServer, start_postgres
from tests.tools.data.conftest import ADA, BEN, POSTS, Tables
from tests.tools.data.test_model import Case, cases, check

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMENTS: dict[str, Any] = {
    "columns": {
        "id": {"type": "integer", "primaryKey": True},
        "post": {"type": "uuid", "references": "posts.id"},
        "user_id": {"type": "uuid"},
        "text": {"type": "text"},
    }
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with start_postgres() as server:
        yield server


@asynccontextmanager
async def open_as(postgres: PostgresServer, user: str, folder: Path) -> AsyncIterator[Installation]:
    """An installation whose database belongs to a user of its name."""
    postgres.execute(f'CREATE DATABASE "{user}" OWNER "{user}"')
    url = postgres.url(user).replace("//baobab@", f"//{user}@")
    settings = {"BAOBAB_DATABASE_URL": url, "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise"}
    server = Server(load_settings(settings, data=folder))
    async with server.open() as application:
        yield Installation(server, application)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    # As a managed Postgres has it: no superuser, but one who may create roles.
    postgres.execute("CREATE ROLE managed LOGIN CREATEROLE")
    async with open_as(postgres, "managed", tmp_path_factory.mktemp("managed")) as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="module")
async def blog(world: Installation) -> Tables:
    """Ada and Ben have a post each, and each has commented on the other's."""
    tables = Tables(world, await world.create_app())
    await tables.apply({"posts": POSTS, "comments": COMMENTS})
    for name in ("posts", "comments"):
        await tables.policy(name, "own", role="user", using_expression="user_id = current_user_id()")
    await tables.policy("posts", "shown", role="anon", command="SELECT", using_expression="public is true")
    posts = await tables.insert("posts", {"title": "Ada's", "user_id": ADA}, {"title": "Ben's", "user_id": BEN})
    by_user = {post["user_id"]: post["id"] for post in posts}
    await tables.insert(
        "comments",
        {"id": 1, "post": by_user[ADA], "user_id": BEN, "text": "by Ben"},
        {"id": 2, "post": by_user[BEN], "user_id": ADA, "text": "by Ada"},
    )
    return tables


def _allow_everything(*_: object) -> Expression:
    return ["true"]


def _forget_policies(patch: pytest.MonkeyPatch) -> None:
    for module, name in (
        ("rows.row_reader", "allowed_rows"),
        ("queries.views", "allowed_rows"),
        ("rows.rows", "allowed_rows"),
        ("rows.rows", "allowed_after"),
    ):
        patch.setattr(import_module(f"baobab.tools.data.{module}"), name, _allow_everything)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements whose conditions let everybody reach every row, as a mistake in our code might."""
    _forget_policies(monkeypatch)


def _find_store(world: Installation) -> DataStore:
    services = world.application.services
    return services.regions[services.options.default_region].data


def _act(world: Installation, job: Job, user_id: str | None, sql: str) -> Callable[[Statements], list[tuple[Any, ...]]]:
    """Raw SQL, run as a statement for a user or a visitor is."""
    roles = _find_store(world).row_security
    assert roles is not None

    def run(statements: Statements) -> list[tuple[Any, ...]]:
        statements.become(roles.become(job, user_id, "user", "2026-01-01T00:00:00+00:00", upserts=False))
        return sorted(statements.rows(sql))

    return run


async def test_raw_sql_of_a_user_reaches_only_what_the_policies_open(blog: Tables) -> None:
    store, app_id = _find_store(blog.world), blog.app.id
    posts = f'"{app_id}".posts'
    titles = f"SELECT title FROM {posts}"  # noqa: S608
    await blog.insert("posts", {"title": "Shown", "user_id": BEN, "public": True})

    async def read(job: Job, user_id: str | None, sql: str = titles) -> list[str]:
        return [row[0] for row in await store.read(app_id, _act(blog.world, job, user_id, sql))]

    assert await read("user_reads", ADA) == ["Ada's"]
    assert await read("user_reads", BEN) == ["Ben's", "Shown"]
    assert await read("user_reads", None) == []
    assert await read("visitor_reads", ADA) == ["Shown"]
    changes = f"UPDATE {posts} SET score = 7 RETURNING title"  # noqa: S608
    assert [row[0] for row in await store.write(app_id, _act(blog.world, "user_writes", ADA, changes))] == ["Ada's"]
    deletes = f"DELETE FROM {posts} RETURNING title"  # noqa: S608
    assert await store.write(app_id, _act(blog.world, "visitor_writes", None, deletes)) == []
    refused_jobs: list[tuple[Job, str]] = [
        ("user_reads", changes),
        ("user_writes", f"INSERT INTO {posts} (id, title, user_id) VALUES (gen_random_uuid(), 'x', '{BEN}')"),  # noqa: S608
        ("user_writes", f"UPDATE {posts} SET user_id = '{BEN}'"),  # noqa: S608
        ("user_reads", f'SELECT document FROM "{app_id}"._catalogue'),  # noqa: S608
        ("user_writes", f'SELECT old_row FROM "{app_id}"._changes'),  # noqa: S608
        ("user_reads", "SELECT id FROM organisations"),
        ("user_reads", f'CREATE TABLE "{app_id}".mine (id integer)'),
        ("user_reads", f"ALTER TABLE {posts} DISABLE ROW LEVEL SECURITY"),
    ]
    for job, sql in refused_jobs:
        with pytest.raises(PrivilegeRefused):
            await store.write(app_id, _act(blog.world, job, ADA, sql))
    # Nothing of it is left for whoever uses the connection next.
    assert len(await store.read(app_id, lambda statements: statements.rows(titles))) == 3


async def test_own_rows_are_looked_up_past_row_level_security_and_no_others(blog: Tables) -> None:
    store, app_id = _find_store(blog.world), blog.app.id
    own_ids = "user_id in (current_user_values('posts', 'user_id', 'user_id'))"
    await blog.policy("comments", "own", role="user", using_expression=own_ids)
    await blog.ask("DELETE", "/rls/posts/own")
    find = "SELECT proname FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace WHERE nspname = ? "
    find += "AND left(proname, 5) = '_own_' AND prosecdef"

    async def list_functions() -> list[str]:
        return [row[0] for row in await store.read(app_id, lambda statements: statements.rows(find, app_id))]

    [function] = await list_functions()
    own_titles = f'SELECT title FROM "{app_id}"."{function}"()'  # noqa: S608
    texts = f'SELECT text FROM "{app_id}".comments'  # noqa: S608

    async def read(job: Job, user_id: str | None, sql: str) -> list[str]:
        return [row[0] for row in await store.read(app_id, _act(blog.world, job, user_id, sql))]

    assert await read("user_reads", ADA, own_titles) == ["Ada's"]
    assert await read("user_reads", ADA, texts) == ["by Ada"]
    assert await read("user_reads", None, own_titles) == []
    assert await read("visitor_reads", None, own_titles) == []
    # It stays right when the table changes, and goes with the last policy that needs it.
    columns = {**POSTS["columns"], "note": {"type": "text"}}
    await blog.apply({"posts": {**POSTS, "columns": columns}, "comments": COMMENTS})
    assert [row["text"] for row in await blog.list("comments", await blog.user(ADA))] == ["by Ada"]
    assert await read("user_reads", BEN, own_titles) == ["Ben's"]
    await blog.ask("DELETE", "/rls/comments/own")
    assert await list_functions() == []


@settings(max_examples=25, deadline=None)
@given(cases())
async def test_row_level_security_alone_answers_as_the_model_does(world: Installation, case: Case) -> None:
    # What an upsert inserts is the one thing that only our own conditions check.
    steps = [(*step[:4], None) if step[0] == "insert" else step for step in case.steps]
    with pytest.MonkeyPatch.context() as patch:
        _forget_policies(patch)
        await check(world, replace(case, steps=steps))


async def test_an_upsert_without_our_conditions_changes_no_row_of_another(
    blog: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    [bens] = [post["id"] for post in await blog.list("posts") if post["user_id"] == BEN]
    own = [post["id"] for post in await blog.list("posts") if post["user_id"] == ADA]
    ada = await blog.user(ADA)
    # The owner is not named, so that the row which is proposed would fulfil no check.
    answer = await blog.ask("POST", "/posts?on_conflict=id", {"id": own[0], "title": "Better"}, ada)
    assert (answer.status, answer.json["user_id"]) == (201, ADA), answer.content
    _forget_policies(monkeypatch)
    assert (await blog.ask("POST", "/posts?on_conflict=id", {"id": bens, "title": "x"}, ada)).status == 403


async def test_policies_whose_checks_ask_each_others_tables_are_no_circle(blog: Tables) -> None:
    await blog.policy("posts", "few", command="INSERT", with_check_expression="exists (select 1 from comments c)")
    asks = "exists (select 1 from posts p where p.user_id = current_user_id())"
    await blog.policy("comments", "with_post", command="INSERT", with_check_expression=asks)
    await blog.policy("posts", "another", command="UPDATE", using_expression=asks)
    ada = await blog.user(ADA)
    assert (await blog.ask("POST", "/comments", {"id": 9, "text": "x", "user_id": ADA}, ada)).status == 201
    assert (await blog.ask("POST", "/posts", {"title": "x", "user_id": ADA}, ada)).status == 201
    assert len(await blog.list("posts", ada)) == 2


async def test_who_reads_while_policies_change_sees_what_one_of_them_opens(blog: Tables) -> None:
    ada = await blog.user(ADA)

    async def change() -> None:
        for number in range(6):
            await blog.policy("posts", f"all{number}", command="SELECT", using_expression="true")
            assert (await blog.ask("DELETE", f"/rls/posts/all{number}")).status == 200

    async def read() -> list[Answer]:
        return [await blog.ask("GET", "/posts?select=title,comments(text)&order=title", None, ada) for _ in range(15)]

    changing = asyncio.create_task(change())
    answer_lists = await asyncio.gather(*(read() for _ in range(4)))
    await changing
    answers = [answer for each in answer_lists for answer in each]
    assert {answer.status for answer in answers} == {200}
    assert {tuple(row["title"] for row in answer.json) for answer in answers} <= {("Ada's",), ("Ada's", "Ben's")}
    assert [row["title"] for row in await blog.list("posts", ada)] == ["Ada's"]


async def test_an_app_that_is_copied_is_guarded_and_one_that_goes_leaves_no_role(
    blog: Tables, postgres: PostgresServer, tmp_path: Path
) -> None:
    app_id, store, files = blog.app.id, _find_store(blog.world), FileStore(tmp_path)
    count = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'managed%'"
    [(before,)] = await store.read(app_id, lambda statements: statements.rows(count))
    await copy_tables(store, files, app_id)
    await copy_tables(files, store, app_id)
    await files.close()
    catalogue = await store.read(app_id, lambda statements: read_catalogue(statements, store, app_id))
    assert store.row_security is not None
    assert catalogue.guard == store.row_security.mark
    titles = f'SELECT title FROM "{app_id}".posts'  # noqa: S608
    assert await store.read(app_id, _act(blog.world, "user_reads", ADA, titles)) == [("Ada's",)]
    await store.erase(app_id)
    assert await store.read(app_id, lambda statements: statements.rows(count)) == [(before,)] == [(5,)]


@pytest.mark.usefixtures("forgetful")
async def test_a_forgotten_condition_shows_no_row_of_another(blog: Tables) -> None:
    ada = await blog.user(ADA)
    answer = await blog.ask("GET", "/posts?select=title,comments(text)", None, ada, prefer="count=exact")
    assert answer.json == [{"title": "Ada's", "comments": []}]
    assert answer.headers["x-total-count"] == "1"
    assert await blog.list("comments?select=text,posts!inner(title)", ada) == []
    assert await blog.list("posts", {}) == []
    titles = {row["title"] for row in await blog.list("posts")}
    assert titles == {"Ada's", "Ben's"}


@pytest.mark.usefixtures("forgetful")
async def test_a_forgotten_condition_changes_no_row_of_another(blog: Tables) -> None:
    ada = await blog.user(ADA)
    before = await blog.list("posts?order=title")
    [bens] = [post["id"] for post in before if post["user_id"] == BEN]
    mine = {"title": "x", "user_id": ADA}
    for method, path, body, status in (
        ("PATCH", f"/posts/{bens}", {"title": "x"}, 404),
        ("DELETE", f"/posts/{bens}", None, 404),
        ("POST", "/posts", {"title": "x", "user_id": BEN}, 403),
        ("POST", "/posts?on_conflict=id", {"id": bens, **mine}, 403),
        ("PATCH", "/posts?title=eq.Ada's", {"user_id": BEN}, 403),
    ):
        assert (await blog.ask(method, path, body, ada)).status == status, (method, path)
    assert (await blog.ask("DELETE", "/posts?title=neq.y", None, {})).status == 401
    assert await blog.list("posts?order=title") == before


async def test_a_caller_answers_rows_of_their_own_write_that_they_cannot_read(blog: Tables) -> None:
    await blog.policy("posts", "guest_book", role="anon", command="INSERT", with_check_expression="user_id is null")
    answer = await blog.ask("POST", "/posts", {"title": "Hello?"}, {})
    assert (answer.status, answer.json["title"]) == (201, "Hello?")
    await blog.policy("posts", "give_away", role="user", command="UPDATE", using_expression="true")
    update_answer = await blog.ask("PATCH", "/posts?title=eq.Ada's", {"user_id": BEN}, await blog.user(ADA))
    assert [row["user_id"] for row in update_answer.json] == [BEN]


async def test_columns_that_policies_name_can_change_and_go(blog: Tables) -> None:
    expression = "exists (select 1 from posts p where p.score > 1 and p.title <> 'what?; \\')"
    await blog.policy("comments", "scored", using_expression=expression)
    wider = {**POSTS["columns"], "score": {"type": "bigint"}}
    await blog.apply({"posts": {**POSTS, "columns": wider}, "comments": COMMENTS})
    await blog.ask("DELETE", "/rls/comments/scored")
    without_score = {name: column for name, column in wider.items() if name != "score"}
    posts = {**POSTS, "columns": without_score, "_dropColumns": ["score"]}
    await blog.apply({"posts": posts, "comments": COMMENTS})
    remaining_columns = {name: column for name, column in COMMENTS["columns"].items() if name != "post"}
    await blog.apply({"comments": {"columns": remaining_columns, "_dropColumns": ["post"]}}, drop=["posts"])
    assert [row["text"] for row in await blog.list("comments", await blog.user(BEN))] == ["by Ben"]


async def test_tables_of_an_earlier_version_are_guarded_by_a_job(blog: Tables, postgres: PostgresServer) -> None:
    app_id, services, store = blog.app.id, blog.world.application.services, _find_store(blog.world)
    policies = f"SELECT count(*) FROM pg_policies WHERE schemaname = '{app_id}'"  # noqa: S608
    guard = f'SELECT guard FROM "{app_id}"._catalogue'  # noqa: S608

    def downgrade(statements: Statements) -> None:
        catalogue = read_catalogue(statements, store, app_id)
        lower_guard(statements, store, app_id)
        write_catalogue(statements, store, app_id, replace(catalogue, guard=None))

    await store.alter(app_id, downgrade)
    services.of(Catalogues).forget(app_id)
    assert await store.read(app_id, lambda statements: statements.rows(policies)) == [(0,)]
    assert [row["title"] for row in await blog.list("posts", await blog.user(ADA))] == ["Ada's"]
    await run_job(blog.world.application, "data_sweep")
    [(mark,)] = await store.read(app_id, lambda statements: statements.rows(guard))
    assert store.row_security is not None
    assert mark.startswith(store.row_security.mark)
    assert await store.read(app_id, lambda statements: statements.rows(policies)) > [(0,)]


async def test_a_server_whose_user_may_create_no_roles_says_so_and_goes_on(
    postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("CREATE ROLE humble LOGIN")
    with caplog.at_level(logging.WARNING):
        async with open_as(postgres, "humble", tmp_path) as world:
            tables = Tables(world, await world.create_app())
            await tables.apply({"posts": POSTS})
            await tables.policy("posts", "own", using_expression="user_id = current_user_id()")
            await tables.insert("posts", {"title": "Ada's", "user_id": ADA}, {"title": "Ben's", "user_id": BEN})
            assert [row["title"] for row in await tables.list("posts", await tables.user(BEN))] == ["Ben's"]
    assert "may not create roles" in caplog.text
