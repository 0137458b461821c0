"""Only reads that are known to be short have places among the quick ones, and on SQLite run on the event loop.

Whatever a table holds, a policy, view, filter, order or generated column that may take long makes a read a slow one.
"""

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from baobab.storage.data.files import FileStore
from baobab.storage.data.postgres import SchemaStore
from baobab.storage.sql.sqlite_connection import SqliteConnection
from baobab.storage.sql.statements import SqliteStatements
from baobab.tools.data.expressions.expressions import COMPARISONS, SqlWriter
from baobab.tools.data.expressions.trees import is_leakproof
from baobab.tools.data.schema.catalogue import Catalogues
from tests.http.installation import Headers
from tests.tools.data.conftest import ADA, BEN, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONDITIONS = {*COMPARISONS, "isdistinct", "and", "or", "not", "in", "is", "among", "true", "false"}
"""Kinds of nodes that are short if their parts are."""
VALUES = {"column", "value", "number", "user", "user_uuid", "role", "now", "claim"}
"""Kinds that are short values."""
OF_EXPRESSIONS = {
    "any": "'x' = any(tags)",
    "call": "lower(body) = 'x'",
    "case": "case when body = 'x' then true else false end",
    "cast": "id::text = '1'",
    "concat": "body || 'x' = 'x'",
    "count_rows": "(select count(*) from others) > 1",
    "exact": "amount + 1 > 2",
    "exact_choice": "coalesce(amount, 1) > 2",
    "exists": "exists (select 1 from others o where o.id = big.id)",
    "ilike": "body ilike '%X%'",
    "in_rows": "id in (select id from others)",
    "json": "data ->> 'a' = 'x'",
    "like": "body like '%x%'",
    "lookup": "(select name from others where others.id = big.id) = 'x'",
}
"""The other kinds that the compiler produces, with a policy that has each."""
OF_QUERIES = {
    "aggregate",
    "behind",
    "contained",
    "contains",
    "distance",
    "json_number",
    "overlaps",
    "search",
    "written",
}
"""The kinds that only filters and the reader produce. Reads with filters are never short."""
OF_COLUMNS = {"fits", "generated"}
"""The kinds that only generated columns have, which are evaluated when a row is written."""
TABLES: dict[str, Any] = {
    "big": {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "body": "text",
            "user_id": "uuid",
            "role_name": "varchar(20)",
            "at": "timestamptz",
            "amount": "numeric",
            "tags": "text[]",
            "data": "jsonb",
            "vec": "vector(2)",
            "size": {"type": "integer", "generated": "length(body)"},
            "folded": {"type": "text", "generated": "lower(body)"},
        }
    },
    "others": {"columns": {"id": {"type": "integer", "primaryKey": True}, "name": "text"}},
}
VIEWS = {"shown": "select id, lower(body) as body from big", "plain": "select id, user_id from big"}
LARGE = "x" * 30_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The reads of users, and whether each had a place among the quick ones.

    Any other read, and any write, fails at a statement on the large table that runs on the event loop of SQLite.
    """
    quick_reads: list[bool] = []
    loop_thread = threading.get_ident()
    for store in (FileStore, SchemaStore):

        async def read(self: Any, *arguments: Any, _read: Any = store.read, **options: Any) -> Any:
            if options.get("caller") not in (None, "feed"):
                quick_reads.append(options["quick"])
            return await _read(self, *arguments, **options)

        monkeypatch.setattr(store, "read", read)

    def watch(run: Callable[..., Any]) -> Callable[..., Any]:
        def run_watched(self: Any, *arguments: Any) -> Any:
            is_of_table = any(isinstance(each, str) and '"big"' in each for each in arguments)
            assert not is_of_table or threading.get_ident() != loop_thread or quick_reads[-1:] == [True], arguments
            return run(self, *arguments)

        return run_watched

    for name in ("rows", "rows_within", "execute_many"):
        monkeypatch.setattr(SqliteStatements, name, watch(getattr(SqliteStatements, name)))
    return quick_reads


async def open_big(tables: Tables, policy: str) -> Headers:
    """Returns Ada's headers. Every row is hers, and as large as texts often are."""
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": TABLES, "views": VIEWS}})
    assert answer.status == 200, answer.content
    rows = [{"id": n, "body": LARGE, "user_id": ADA, "tags": [LARGE], "data": {"a": LARGE}} for n in (1, 2)]
    await tables.insert("big", *({**row, "vec": [1, 0], "amount": "2.5"} for row in rows))
    await tables.policy("others", "open", using_expression="true")
    await tables.policy("big", "some", using_expression=policy)
    return await tables.user(ADA)


def list_kinds(tree: Any) -> set[str]:
    """The kinds of nodes of a tree, and of its subqueries."""
    if isinstance(tree, dict):
        return set().union(*map(list_kinds, tree.values()))
    if not isinstance(tree, list) or not tree:
        return set()
    kinds = {tree[0]} if isinstance(tree[0], str) and tree[0] in {*SqlWriter.writers, *COMPARISONS} else set()
    return kinds.union(*map(list_kinds, tree))


async def test_each_kind_of_node_is_known_to_be_short_or_long() -> None:
    groups = (CONDITIONS, VALUES, OF_EXPRESSIONS, OF_QUERIES, OF_COLUMNS)
    assert sum(map(len, groups)) == len(set().union(*groups))
    # A new kind of node must be put into one of these groups.
    assert set().union(*groups) == {*SqlWriter.writers, *COMPARISONS}
    column: list[Any] = ["column", "", "id"]
    for kind in (*OF_EXPRESSIONS, *OF_QUERIES, *OF_COLUMNS):
        assert not is_leakproof([kind, column, column]), kind
        for short in (["=", column, [kind, column]], ["in", [kind], [column]], ["in", column, [[kind]]]):
            assert not is_leakproof(short), kind
            assert not is_leakproof(["or", ["true"], ["not", ["and", short]]]), kind
        assert not is_leakproof(["is", [kind, column], "null"]), kind
    for kind in VALUES:
        assert is_leakproof(["=", column, [kind, "", "id"]]), kind


@pytest.mark.parametrize(
    ("policy", "is_short"),
    [
        ("true", True),
        ("user_id = current_user_id()", True),
        ("user_id = current_user_id() and (at < now() - interval '1 day' or at is null)", True),
        ("role_name is distinct from current_user_role() or id in (1, 2)", True),
        ("role_name is null or role_name = current_user_email()", True),
        ("body = 'x' or user_id = current_user_id()", False),
        ("body is not null", False),
        ("folded = 'x' or id > 0", False),
        ("amount > 1", False),
        *((f"id > 0 or {condition}", False) for condition in OF_EXPRESSIONS.values()),
    ],
)
async def test_a_read_is_quick_only_under_a_policy_that_is_short_whatever_the_table_holds(
    tables: Tables, reads: list[bool], policy: str, is_short: bool
) -> None:
    ada = await open_big(tables, policy)
    catalogue = await tables.world.application.services.of(Catalogues).get(tables.app.id)
    kinds = list_kinds(catalogue.tables["big"].policies["some"].using_tree)
    for kind, condition in OF_EXPRESSIONS.items():
        assert not policy.endswith(condition) or kind in kinds, kinds
    for path in ("/big?select=id", "/big?select=id,size&order=size.desc", "/big/1"):
        reads.clear()
        answer = await tables.ask("GET", path, None, ada)
        assert answer.status == 200, answer.content
        assert reads[0] is is_short, path
    for path in ("/shown?select=id", "/plain?select=id", "/big?select=id&order=folded", "/big?select=id&body=eq.x"):
        reads.clear()
        assert (await tables.ask("GET", path, None, ada)).status == 200, path
        assert reads == [False], path


async def test_what_a_request_asks_of_large_values_makes_it_slow(tables: Tables, reads: list[bool]) -> None:
    ada = await open_big(tables, "user_id = current_user_id()")
    for query in (
        *("order=body", "order=data->>a", "order=vec.cosine.{1,0}", "order=amount", "order=id,folded.desc"),
        *("select=count()", "select=data->>a", "select=id,body.max()", "select=data->a", "limit=101&select=id"),
        *("body=like.*x*", "body=ilike.*x*", "body=wfts.x", 'data=cs.{"a":"x"}', 'data=cd.{"a":"x"}', "tags=ov.{x}"),
        *("body=eq.x", "body=in.(x,y)", "data->a=gt.1", f"user_id=neq.{BEN}&folded=gt.x", "or=(id.eq.1,body.gt.x)"),
    ):
        reads.clear()
        answer = await tables.ask("GET", f"/big?{quote(query, safe='=&')}", None, ada)
        assert answer.status == 200, (query, answer.content)
        assert reads == [False], query
    reads.clear()
    assert (await tables.ask("PATCH", "/big/1", {"body": f"{LARGE}y"}, ada)).status == 200
    assert (await tables.ask("PATCH", "/big?folded=like.*y", {"at": None}, ada)).status == 200


@pytest.mark.on_files
async def test_a_quick_read_asks_again_and_again_whether_it_has_taken_too_long(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await open_big(tables, "user_id = current_user_id()")
    await tables.insert("big", *({"id": n, "user_id": BEN} for n in range(3, 203)))
    questions: list[bool] = []

    def must_stop(self: SqliteConnection, _ask: Any = SqliteConnection._must_stop) -> bool:
        questions.append(_ask(self))
        return questions[-1]

    monkeypatch.setattr(SqliteConnection, "_must_stop", must_stop)
    # Each row of another's may be a text of megabytes, behind which is the column that the policy compares.
    assert len(await tables.list("big?select=id", ada)) == 2
    assert len(questions) >= 200 // 20
