"""Names and values that would be SQL, were they ever read as such: they are refused, or they are texts."""

from typing import Any
from urllib.parse import quote

import pytest

from baobab.tools.data.schema.catalogue import NAME
from tests.tools.data.conftest import Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

CORPUS = (
    "'", '"', "`", "\\", "''", '""', "';--", '";--', "' OR '1'='1", '" OR ""="', "1 OR 1=1", "1; DROP TABLE items",
    "'; DROP TABLE items; --", '"; DROP TABLE items; --', "') OR ('1'='1",
    "' UNION SELECT name FROM sqlite_master --", "' UNION ALL SELECT NULL,NULL,version() --",
    "1' AND (SELECT 1 FROM pg_sleep(5)) --", "||(SELECT 1)||", "'||(SELECT document FROM _catalogue)||'", "${1}",
    "$1", "$$x$$", "?", "%s", "%(a)s", "%", ":a", "@a", "/*", "*/", "--", "#", "\t", "\n", "\r\n", "\uff2f\uff32",
    "\u2018\u2019", "\u02bc", "\u202e", "\ufeff", "a" * 3000, "{}", "{a}", "[]", "(", ")", "((((", ",", ".", "..",
    "eq.1", "not.eq.1", "*", "null", "NULL", "true", "rowid", "oid", "ctid", "xmin", "sqlite_master",
    "pg_catalog.pg_tables", "information_schema.tables", "_catalogue", "_usage", "items.secret", "secret::text",
    "name->>x", "items!inner(id)", "count()", "id.sum()", "id.cosine.{1}", "a\\' OR 1=1", "\\x27", "%27", "0x27",
    "CHAR(39)",
)  # fmt: skip
ITEMS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "name": {"type": "text"},
        "more": {"type": "jsonb"},
        "words": {"type": "text[]"},
        "secret": {"type": "text", "default": "'hidden'"},
    }
}


@pytest.fixture
async def items(tables: Tables) -> Tables:
    await tables.apply({"items": ITEMS})
    await tables.insert("items", {"name": "first"})
    return tables


async def test_a_value_is_kept_found_and_deleted_as_the_text_that_it_is(items: Tables) -> None:
    values = [{"name": text, "more": {text: [text]}, "words": [text]} for text in CORPUS]
    inserted_rows = await items.insert("items", *values)
    assert [{name: row[name] for name in ("name", "more", "words")} for row in inserted_rows] == values
    for row, text in zip(inserted_rows, CORPUS, strict=True):
        [found_row] = await items.list(f"items?select=id&name=eq.{quote(text, safe='')}")
        assert found_row == {"id": row["id"]}, text
        inside = text.replace("\\", "\\\\").replace('"', '\\"')
        assert await items.list(f"items?select=id&or=(name.eq.{quote(f'{chr(34)}{inside}{chr(34)}', safe='')})") == [
            found_row
        ]
        assert await items.list(f"items?select=id&name=in.({quote(f'{chr(34)}{inside}{chr(34)}', safe='')})") == [
            found_row
        ]
    answer = await items.ask("PATCH", f"/items?name=eq.{quote(CORPUS[8], safe='')}", {"name": CORPUS[12]})
    assert [row["name"] for row in answer.json] == [CORPUS[12]]
    assert len(await items.list("items?select=id&limit=1000")) == len(CORPUS) + 1


@pytest.mark.parametrize(
    "place",
    ["{}", "items?{}=eq.1", "items?select={}", "items?order={}", "items?name={}", "items?or=({})", "items?and={}",
     "items?select=id,{}(id)", "items?more->>{}=eq.1", "items?select=more->{}", "items?id=in.({})", "items?words=cs.{}",
     "items?limit={}", "items?offset={}", "items?name=eq(any).{}", "items/{}", "items?name=fts.{}",
     "items?name=like.{}"],
)  # fmt: skip
async def test_no_name_in_a_query_is_read_as_sql(items: Tables, place: str) -> None:
    for text in CORPUS:
        answer = await items.ask("GET", f"/data/{place.format(quote(text, safe=''))}")
        assert answer.status < 500, text
        # The rows of no other table, and no message of a database.
        for word in (b'columns": [', b"PostgreSQL", b"syntax", b'near "', b"psycopg", b"sqlite3."):
            assert word not in answer.content, text
    assert [row["name"] for row in await items.list("items")] == ["first"]


async def test_no_name_of_a_write_or_of_a_schema_is_read_as_sql(items: Tables) -> None:
    for text in CORPUS:
        is_name = NAME.fullmatch(text) is not None
        quoted_name = quote(text, safe="")
        for method, path, body in (
            ("POST", f"/items?on_conflict={quoted_name}", {"name": "x"}),
            ("PATCH", f"/items?{quoted_name}=eq.1", {"name": "x"}),
            ("POST", "/items", {text: 1}),
            ("PATCH", "/items?id=eq.1", {text: 1}),
            ("POST", "/rls/policies", {"table_name": "items", "policy_name": text, "using_expression": "nothing"}),
            (
                "POST",
                "/rls/policies",
                {"table_name": "items", "policy_name": "p", "using_expression": f"secret = {text}("},
            ),
            ("POST", "/rls", {"table_name": "items", "user_column": text}),
        ):
            answer = await items.ask(method, path, body)
            assert 400 <= answer.status < 500, (method, path, body, answer.content)
        for broken_tables in (
            {text: {"columns": {"id": {"type": "integer"}}}},
            {"items": {"columns": {text: {"type": "integer"}}}},
            {"items": {"columns": {"id": {"type": text}}}},
            {"items": {"columns": {"x": {"type": "text", "default": text}}}},
            {"items": {"columns": {"x": {"type": "integer", "references": text}}}},
            {"items": {**ITEMS, "indexes": {text: {"columns": ["name"]}}}},
            {"items": {**ITEMS, "indexes": {"i": {"columns": [text]}}}},
            {"items": {**ITEMS, "indexes": {"i": {"columns": ["name"], "method": "gin", "opclass": f"x {text}"}}}},
        ):
            answer = await items.ask("POST", "/schema/apply", {"schema": {"tables": broken_tables}, "dry_run": True})
            assert answer.status < 500, (broken_tables, answer.content)
            assert is_name or answer.status == 400 or "default" in str(broken_tables), (broken_tables, answer.content)
    assert [row["name"] for row in await items.list("items")] == ["first"]
