"""Nothing that a caller asks for is evaluated on rows that policies hide, so no time and no error tells of them.

Every function of SQL counts here whether it was called with a value of a hidden row.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from baobab.storage.data import functions
from tests.http.installation import Headers
from tests.tools.data.conftest import ADA, BEN, Tables

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.on_files]

HIDDEN = "hiddenrow"
_ID = {"type": "integer", "primaryKey": True}
TABLES: dict[str, Any] = {
    "posts": {"columns": {"id": _ID, "title": "text"}},
    "grants": {"columns": {"id": _ID, "secret_id": "integer", "user_id": "uuid"}},
    "secrets": {
        "columns": {
            "id": _ID,
            "user_id": "uuid",
            "shown": "boolean",
            "code": "text",
            "body": "text",
            "data": "jsonb",
            "tags": "text[]",
            "vec": "vector(2)",
            "post_id": {"type": "integer", "references": "posts.id"},
        },
        "indexes": {"by_user": {"columns": ["user_id"]}, "by_code": {"columns": ["code"]}},
    },
    "notes": {"columns": {"id": _ID, "secret_id": {"type": "integer", "references": "secrets.id"}}},
}
VIEWS = {
    "plain": "select id, code, body, data, tags, post_id from secrets",
    "joined": "select s.id as id, s.code, s.body, s.data, s.tags, p.title from secrets s"
    " join posts p on p.id = s.post_id",
    "leaky": "select s.id as id, s.code, s.body, s.data, s.tags from secrets s"
    " join posts p on lower(s.code) <> lower(p.title) where s.body like '%e%'",
    "computed": "select id, code, lower(body) as body, data, tags from secrets",
}
POLICIES = {
    "compared": "user_id = current_user_id()",
    "several": "shown or user_id = current_user_id()",
    "asked": "exists (select 1 from grants g where g.secret_id = secrets.id and g.user_id = current_user_id())",
    "listed": "id in (select secret_id from grants where user_id = current_user_id())",
}
FILTERS = [
    "body=like.*e*",
    "body=not.like.*e*",
    "body=ilike.*E*",
    "body=like(any).{*x*,*e*}",
    "body=wfts.seen",
    "body=fts.'seen'",
    "body=plfts.seen",
    "body=phfts.seen",
    'data=cs.{"a":"seen"}',
    'data=cd.{"a":"seen"}',
    "tags=ov.{seen}",
    "tags=cs.{seen}",
    "tags=cd.{seen}",
    "data->>a=eq.seen",
    "data->>a=like.*e*",
    "or=(body.like.*e*,code.eq.x)",
    "and=(code.gte.a,body.ilike.*e*)",
    f"user_id=eq.{BEN}&body=like.*e*",
    f"code=eq.{HIDDEN}&body=wfts.seen",
    "id=eq.2&body=ilike.*e*",
]


@pytest.fixture
def evaluated_values(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The calls of functions that got a value of a row, and whether it was that of the hidden row."""
    calls: list[tuple[str, bool]] = []

    def watch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(check: Any, *arguments: Any) -> Any:
            calls.append((name, any(HIDDEN in str(value) or value == b"\0\0\x10A" * 2 for value in arguments)))
            return function(check, *arguments)

        return call

    for name, (count, function) in functions.FUNCTIONS.items():
        monkeypatch.setitem(functions.FUNCTIONS, name, (count, watch(name, function)))
    return calls


async def open_secrets(tables: Tables, policy: str) -> Headers:
    """Returns Ada's headers. She sees the first row, and not the second."""
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": TABLES, "views": VIEWS}})
    assert answer.status == 200, answer.content
    await tables.insert("posts", {"id": 1, "title": "t"})
    for number, word, user_id, vector in ((1, "seen", ADA, [1, 0]), (2, HIDDEN, BEN, [9, 9])):
        row = {"user_id": user_id, "shown": False, "code": word, "body": f"{word} e", "data": {"a": word}}
        await tables.insert("secrets", {"id": number, **row, "tags": [word], "vec": vector, "post_id": 1})
        await tables.insert("notes", {"id": number, "secret_id": number})
        await tables.insert("grants", {"id": number, "secret_id": number, "user_id": user_id})
    for table in ("posts", "notes", "grants"):
        await tables.policy(table, "open", using_expression="true")
    await tables.policy("secrets", "some", using_expression=POLICIES[policy])
    return await tables.user(ADA)


def under(table: str, filters: str) -> str:
    return "&".join(f"{table}.{part}" for part in filters.split("&"))


PLACES: dict[str, Callable[[str], str]] = {
    "list": lambda f: f"secrets?{f}",
    "ordered": lambda f: f"secrets?{f}&order=data->>a,vec.cosine.{{1,0}}",
    "shown": lambda f: f"secrets?{f}&select=id,data->>a,code",
    "aggregate": lambda f: f"secrets?{f}&select=count(),max:code.max()",
    "grouped": lambda f: f"secrets?{f}&select=data->>a,count()",
    "embedded": lambda f: f"posts?select=id,secrets(id,body)&{under('secrets', f)}",
    "embedded, limited": lambda f: f"posts?select=id,secrets(id)&secrets.limit=1&{under('secrets', f)}",
    "inner": lambda f: f"posts?select=id,secrets!inner()&{under('secrets', f)}",
    "none": lambda f: f"posts?select=id,secrets()&secrets=is.null&{under('secrets', f)}",
    "embedded in embedded": lambda f: (
        f"notes?select=id,secrets(id,posts(id,secrets(id)))&{under('secrets.posts.secrets', f)}"
    ),
    "inner of the row": lambda f: f"secrets?select=id,notes!inner()&{f}",
    "order of the related": lambda f: (
        f"notes?select=id,secrets()&order=secrets(code),secrets(data->>a)&{under('secrets', f)}"
    ),
    **{f"view {name}": lambda f, name=name: f"{name}?select=id&{f}" for name in VIEWS},  # type: ignore[misc]
}


@pytest.mark.parametrize("policy", POLICIES)
async def test_no_read_evaluates_anything_on_a_hidden_row(
    tables: Tables, evaluated_values: list[tuple[str, bool]], policy: str
) -> None:
    ada = await open_secrets(tables, policy)
    looked_at: set[str] = set()
    for place, write in PLACES.items():
        for filters in FILTERS:
            if "user_id" in filters and place.startswith("view"):
                continue
            if HIDDEN in filters and place == "view leaky":
                # SQLite computes the view's condition on the word that the caller has sent.
                continue
            evaluated_values.clear()
            answer = await tables.ask("GET", f"/{quote(write(filters), safe='?=&')}", None, ada, prefer="count=exact")
            assert answer.status in (200, 206), (place, filters, answer.content)
            assert HIDDEN not in str(answer.json), (place, filters)
            assert not [name for name, was_hidden in evaluated_values if was_hidden], (place, filters)
            looked_at |= {name for name, _ in evaluated_values}
    assert {"like", "fold", "english_search", "json_contains", "json_contained", "json_overlaps"} <= looked_at
    assert {"json_as_text", "vector_cosine"} <= looked_at


@pytest.mark.parametrize("policy", POLICIES)
async def test_no_write_by_filter_evaluates_the_filter_on_a_hidden_row(
    tables: Tables, evaluated_values: list[tuple[str, bool]], policy: str
) -> None:
    ada = await open_secrets(tables, policy)
    for filters in FILTERS:
        where: dict[str, list[str]] = {}
        for part in filters.split("&"):
            name, _, value = part.partition("=")
            where.setdefault(name, []).append(value)
        update = {"op": "update", "table": "secrets", "where": where, "changes": {"shown": False}}
        delete = {"op": "delete", "table": "secrets", "where": where}
        path = f"/secrets?{quote(filters, safe='?=&')}"
        for method, target, body in (
            ("PATCH", path, {"shown": False}),
            ("DELETE", f"{path}&select=id,notes(id)", None),
            ("POST", "/data-batch", {"writes": [update]}),
            ("POST", "/data-batch", {"writes": [delete]}),
            ("GET", f"/data-export/secrets?{quote(filters, safe='?=&')}", None),
        ):
            evaluated_values.clear()
            answer = await tables.ask(method, target, body, ada)
            # A note refers to the row that is deleted.
            assert answer.status in (200, 400), (method, filters, answer.content)
            assert not [name for name, was_hidden in evaluated_values if was_hidden], (method, target, filters)
    [hidden_row] = await tables.list("secrets?id=eq.2")
    assert hidden_row["code"] == HIDDEN


async def test_a_subquery_of_a_policy_evaluates_its_condition_only_on_rows_that_it_may_see(
    tables: Tables, evaluated_values: list[tuple[str, bool]]
) -> None:
    await open_secrets(tables, "compared")
    same = "exists (select 1 from secrets s where lower(s.code) = lower(posts.title))"
    await tables.policy("posts", "narrow", using_expression=same, restrictive=True)
    ada = await tables.user(ADA)
    evaluated_values.clear()
    assert await tables.list("posts", ada) == []
    assert evaluated_values
    assert not [name for name, was_hidden in evaluated_values if was_hidden]
