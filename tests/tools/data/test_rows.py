"""Rows over REST: what is inserted is read, filtered, ordered, changed and deleted, alike on both databases."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.tools.data.conftest import ADA, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERY_TYPE: dict[str, tuple[str, Any, Any]] = {
    "a_text": ("text", "Grüße 🌳 'quoted' \"double\"", "Grüße 🌳 'quoted' \"double\""),
    "a_varchar": ("varchar(5)", "abcde", "abcde"),
    "a_uuid": ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "a_boolean": ("boolean", True, True),
    "a_smallint": ("smallint", -32768, -32768),
    "an_integer": ("integer", 2147483647, 2147483647),
    "a_bigint": ("bigint", "9223372036854775807", "9223372036854775807"),
    "a_real": ("real", 1.5, 1.5),
    "a_double": ("double precision", 0.1, 0.1),
    "a_numeric": ("numeric", "12345678901234567890.123456789", "12345678901234567890.123456789"),
    "a_price": ("numeric(10,2)", 19.999, "20.00"),
    "a_timestamptz": ("timestamptz", "2024-02-29T12:30:00.5+02:00", "2024-02-29T10:30:00.5+00:00"),
    "a_timestamp": ("timestamp", "2024-02-29 12:30:00", "2024-02-29T12:30:00"),
    "a_date": ("date", "2024-02-29", "2024-02-29"),
    "a_time": ("time", "23:59:59.25", "23:59:59.25"),
    "a_timetz": ("timetz", "23:59:59+02:00", "23:59:59+02"),
    "an_interval": ("interval", "P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
    "a_json": ("json", {"b": [1, 2.5, None], "a": "ü"}, {"b": [1, 2.5, None], "a": "ü"}),
    "a_jsonb": ("jsonb", [1, {"x": True}], [1, {"x": True}]),
    "a_bytea": ("bytea", "\\x00ff10", "\\x00ff10"),
    "texts": ("text[]", ["a", 'b,"c', "{}"], ["a", 'b,"c', "{}"]),
    "integers": ("integer[]", [3, 1, 2], [3, 1, 2]),
    "a_vector": ("vector(3)", [0.1, 2, -3.5], [0.1, 2, -3.5]),
}


async def test_every_type_comes_back_as_it_is_documented(tables: Tables) -> None:
    columns = {name: {"type": kind} for name, (kind, _, _) in EVERY_TYPE.items()}
    await tables.apply({"things": {"columns": {"id": {"type": "serial", "primaryKey": True}, **columns}}})
    given_row = {name: value for name, (_, value, _) in EVERY_TYPE.items()}
    expected_row = {"id": 1, **{name: shown_value for name, (_, _, shown_value) in EVERY_TYPE.items()}}
    assert (await tables.ask("POST", "/things", given_row)).json == expected_row
    assert (await tables.ask("GET", "/things/1")).json == expected_row
    nothing = (await tables.ask("POST", "/things", {"a_text": None})).json
    assert nothing == {"id": 2, **dict.fromkeys(EVERY_TYPE)}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("an_integer", 2147483648), ("an_integer", "x"), ("an_integer", 1.5), ("an_integer", True), ("an_integer", [1]),
        ("a_bigint", "9223372036854775808"), ("a_varchar", "abcdef"), ("a_text", 5), ("a_text", {"a": 1}),
        ("a_uuid", "nonsense"), ("a_boolean", "true"), ("a_boolean", 1), ("a_price", "123456789.00"),
        ("a_numeric", "1e"), ("a_numeric", "NaN"), ("a_double", "1"), ("a_timestamptz", "yesterday"),
        ("a_timestamptz", "2024-13-01T00:00:00Z"), ("a_date", "2023-02-29"), ("an_interval", "three days"),
        ("a_bytea", "00ff"), ("texts", "a"), ("texts", [1]), ("a_vector", [1, 2]), ("a_vector", ["a", "b", "c"]),
    ],
)  # fmt: skip
async def test_a_value_of_another_type_is_refused_and_named(tables: Tables, column: str, value: Any) -> None:
    columns = {name: {"type": kind} for name, (kind, _, _) in EVERY_TYPE.items()}
    await tables.apply({"things": {"columns": {"id": {"type": "serial", "primaryKey": True}, **columns}}})
    answer = await tables.ask("POST", "/things", {column: value})
    assert answer.status == 400
    assert answer.json["error"]["code"] in ("VALIDATION_INVALID_TYPE", "VALIDATION_INVALID_INPUT")
    assert f"`{column}`" in answer.json["error"]["message"]
    assert await tables.list("things") == []


@pytest.mark.parametrize("value", ["stock - 1", "stock+1", "+= 1", {"increment": -1}])
@pytest.mark.parametrize("kind", ["integer", "numeric", "real"])
async def test_a_computed_value_is_refused_with_the_way_to_change_a_number(
    tables: Tables, kind: str, value: Any
) -> None:
    await tables.apply({"things": {"columns": {"id": {"type": "serial", "primaryKey": True}, "stock": kind}}})
    await tables.insert("things", {"stock": 5})
    answer = await tables.ask("PATCH", "/things/1", {"stock": value})
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (400, "VALIDATION_INVALID_TYPE")
    assert "set, not computed" in error["message"]
    assert "PATCH /v1/{app_id}/{table}" in error["remediation"]
    # The way that it names.
    changed_rows = await tables.ask("PATCH", "/things?id=eq.1&stock=eq.5", {"stock": 4})
    assert [row["id"] for row in changed_rows.json] == [1]


@pytest.fixture
async def posts(tables: Tables) -> Tables:
    await tables.apply({"posts": POSTS})
    rows: list[dict[str, Any]] = [
        {"title": "Alpha", "score": 1, "public": True, "created_at": "2024-01-01T00:00:00Z", "user_id": ADA},
        {"title": "alphabet", "score": 2, "public": False, "created_at": "2024-01-02T00:00:00Z"},
        {"title": "Beta 100%", "score": 3, "public": True, "created_at": "2024-01-03T00:00:00Z"},
        {"title": "ÉTÉ", "score": None, "public": None, "created_at": "2024-01-04T00:00:00Z"},
        {"title": 'co,mma "quoted" (x)', "score": -5, "public": False, "created_at": "2024-01-05T00:00:00Z"},
    ]
    await tables.insert("posts", *rows)
    return tables


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("score=eq.1", ["Alpha"]),
        ("score=neq.1", ["alphabet", "Beta 100%", 'co,mma "quoted" (x)']),
        ("score=gt.1", ["alphabet", "Beta 100%"]),
        ("score=gte.1&score=lt.3", ["Alpha", "alphabet"]),
        ("score=lte.-5", ['co,mma "quoted" (x)']),
        ("title=like.Alpha%25", ["Alpha"]),
        ("title=like.*100\\%25", ["Beta 100%"]),
        ("title=ilike.alpha*", ["Alpha", "alphabet"]),
        ("title=ilike.été", ["ÉTÉ"]),
        ("title=in.(Alpha,ÉTÉ)", ["Alpha", "ÉTÉ"]),
        ('title=in.("co,mma "quoted" (x)",Alpha)', ["Alpha", 'co,mma "quoted" (x)']),
        ("score=in.()", []),
        ("score=is.null", ["ÉTÉ"]),
        ("score=not.is.null", ["Alpha", "alphabet", "Beta 100%", 'co,mma "quoted" (x)']),
        ("public=is.true", ["Alpha", "Beta 100%"]),
        ("public=eq.false", ["alphabet", 'co,mma "quoted" (x)']),
        ("public=isdistinct.true", ["alphabet", "ÉTÉ", 'co,mma "quoted" (x)']),
        ("title=not.like.*a*", ["ÉTÉ"]),
        ("or=(score.eq.1,score.eq.3)", ["Alpha", "Beta 100%"]),
        ("or=(score.is.null,and(score.gt.1,public.is.false))", ["alphabet", "ÉTÉ"]),
        ("not.or=(score.gt.0,title.eq.ÉTÉ)", ['co,mma "quoted" (x)']),
        ("created_at=gte.2024-01-04", ["ÉTÉ", 'co,mma "quoted" (x)']),
        ("created_at=eq.2024-01-01T01:00:00%2B01:00", ["Alpha"]),
        (f"user_id=eq.{ADA.upper()}", ["Alpha"]),
        ("title=like(any).{Alpha,Beta*}", ["Alpha", "Beta 100%"]),
    ],
)
async def test_filters_find_the_rows_that_fulfil_them(posts: Tables, query: str, titles: list[str]) -> None:
    query = quote(query, safe="=&.,()%*\\{}+-:\"'").replace(" ", "%20").replace('"', "%22")
    rows = await posts.list(f"posts?select=title&order=created_at&{query}")
    assert [row["title"] for row in rows] == titles


@pytest.mark.parametrize(
    "query",
    [
        "nothing=eq.1", "score=equals.1", "score=1", "score=eq", "or=(score.eq.1", "or=score.eq.1", "or=()",
        "score=like.1", "score=is.true", "public=is.maybe", "title=cs.{a}", "posts.score=eq.1", "order=nothing",
        "order=score.down", "order=title;drop", "or=(nothing.eq.1)", "score=in.1,2", "score;=eq.1",
    ],
)  # fmt: skip
async def test_a_filter_that_there_is_not_is_named(posts: Tables, query: str) -> None:
    answer = await posts.ask("GET", f"/posts?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "VALIDATION_INVALID_SCHEMA")


@pytest.mark.parametrize(
    "query", ["score=eq.one", "score=gt.99999999999999999999", "created_at=lt.soon", "title=like.a\\"]
)
async def test_a_filter_whose_value_is_no_value_of_the_column_is_refused(posts: Tables, query: str) -> None:
    answer = await posts.ask("GET", f"/posts?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")


async def test_rows_are_ordered_and_paged(posts: Tables) -> None:
    scores = [row["score"] for row in await posts.list("posts?select=score&order=score")]
    assert scores == [-5, 1, 2, 3, None]
    scores = [row["score"] for row in await posts.list("posts?select=score&order=score.desc.nullslast,title.asc")]
    assert scores == [3, 2, 1, -5, None]
    assert [row["score"] for row in await posts.list("posts?order=score&limit=2&offset=1")] == [1, 2]
    titles = [row["title"] for row in await posts.list("posts?order=title")]
    assert titles == ["Alpha", "Beta 100%", "alphabet", 'co,mma "quoted" (x)', "ÉTÉ"]


async def test_all_rows_are_counted_where_that_is_preferred(posts: Tables) -> None:
    answer = await posts.ask("GET", "/posts?limit=2&score=not.is.null", prefer="count=exact")
    assert (answer.headers["content-range"], answer.headers["x-total-count"]) == ("0-1/4", "4")
    assert len(answer.json) == 2


async def test_columns_are_selected_renamed_and_cast(posts: Tables) -> None:
    assert await posts.list("posts?select=headline:title,score::text,nothing&score=eq.1") == [
        {"headline": "Alpha", "score": "1"}
    ]
    assert set((await posts.list("posts?select=nothing&limit=1"))[0]) == set(POSTS["columns"])


async def test_one_row_comes_as_an_object_where_that_is_asked(posts: Tables) -> None:
    single = "application/vnd.pgrst.object+json"
    answer = await posts.ask("GET", "/posts?score=eq.1&select=title", accept=single)
    assert answer.json == {"title": "Alpha"}
    several = await posts.ask("GET", "/posts", accept=single)
    assert (several.status, several.json["error"]["code"]) == (406, "PGRST116")


async def test_a_row_is_changed_and_deleted_by_its_key(posts: Tables) -> None:
    [row] = await posts.list("posts?score=eq.1")
    answer = await posts.ask("PATCH", f"/posts/{row['id']}", {"title": "Omega", "unknown": 1})
    assert (answer.status, answer.json) == (200, {**row, "title": "Omega"})
    assert (await posts.ask("GET", f"/posts/{row['id']}")).json["title"] == "Omega"
    assert (await posts.ask("DELETE", f"/posts/{row['id']}")).json == {"deleted": True}
    for method in ("GET", "PATCH", "DELETE"):
        gone_answer = await posts.ask(method, f"/posts/{row['id']}", {"title": "x"} if method == "PATCH" else None)
        assert (gone_answer.status, gone_answer.json["error"]["code"]) == (404, "RESOURCE_NOT_FOUND")
    bad = await posts.ask("GET", "/posts/not-a-uuid")
    assert (bad.status, bad.json["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")


async def test_rows_are_changed_and_deleted_by_filters_and_never_all_by_leaving_them_out(posts: Tables) -> None:
    answer = await posts.ask("PATCH", "/posts?score=gte.2&select=score", {"public": True})
    assert [row["score"] for row in answer.json] == [2, 3]
    deleted_answer = await posts.ask("DELETE", "/posts?score=gte.2", prefer="return=minimal")
    assert (deleted_answer.status, deleted_answer.content) == (204, b"")
    assert len(await posts.list("posts")) == 3
    for method, body in (("PATCH", {"score": 0}), ("DELETE", None)):
        refusal = await posts.ask(method, "/posts", body)
        assert (refusal.status, refusal.json["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")
    too_many = await posts.ask("DELETE", "/posts?id=not.is.null", prefer="max-affected=2")
    assert too_many.status == 400
    assert len(await posts.list("posts")) == 3


async def test_many_rows_are_inserted_all_or_none(tables: Tables) -> None:
    await tables.apply(
        {"tags": {"columns": {"id": {"type": "serial", "primaryKey": True}, "name": {"type": "text", "unique": True}}}}
    )
    inserted_rows = await tables.insert("tags", {"name": "a"}, {"name": "b"})
    assert inserted_rows == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    twice = await tables.ask("POST", "/tags", [{"name": "c"}, {"name": "a"}])
    assert (twice.status, twice.json["error"]["code"]) == (409, "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION")
    assert twice.json["error"]["details"]["column"] == "name"
    assert [row["name"] for row in await tables.list("tags?order=id")] == ["a", "b"]


async def test_an_upsert_changes_the_row_that_is_there(tables: Tables) -> None:
    columns = {"id": {"type": "integer", "primaryKey": True}, "name": {"type": "text", "unique": True}, "n": "integer"}
    await tables.apply({"tags": {"columns": columns}})
    await tables.insert("tags", {"id": 1, "name": "a", "n": 1})
    answer = await tables.ask("POST", "/tags?on_conflict=name", {"id": 1, "name": "a", "n": 2})
    assert answer.json == {"id": 1, "name": "a", "n": 2}
    ignored_answer = await tables.ask(
        "POST", "/tags", [{"id": 1, "n": 9}, {"id": 2, "n": 9}], prefer="resolution=ignore-duplicates"
    )
    assert [row["id"] for row in ignored_answer.json] == [2]
    assert (await tables.list("tags?id=eq.1"))[0]["n"] == 2
    wrong = await tables.ask("POST", "/tags?on_conflict=n", {"id": 3})
    assert wrong.status == 400


async def test_an_upsert_leaves_the_columns_that_its_row_does_not_name_as_they_are(tables: Tables) -> None:
    columns = {
        "id": {"type": "serial", "primaryKey": True},
        "mail": {"type": "text", "unique": True},
        "name": "text",
        "role": {"type": "text", "default": "'guest'"},
    }
    await tables.apply({"persons": {"columns": columns}})
    await tables.insert("persons", {"mail": "a", "name": "Ada", "role": "owner"})
    rows = [{"mail": "a", "name": "Eve"}, {"mail": "b", "name": "Ben"}, {"mail": "a"}, {"mail": "b", "role": "owner"}]
    answer = await tables.ask("POST", "/persons?on_conflict=mail&select=mail,name,role", rows)
    assert (answer.status, answer.json[2]) == (201, {"mail": "a", "name": "Eve", "role": "owner"})
    people = await tables.list("persons?order=mail")
    assert [(row["name"], row["role"]) for row in people] == [("Eve", "owner"), ("Ben", "owner")]
    assert people[0]["id"] == 1


async def test_what_constraints_refuse_is_told_by_its_kind(tables: Tables) -> None:
    parent = {"columns": {"id": {"type": "integer", "primaryKey": True}}}
    child = {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "parent_id": {"type": "integer", "nullable": False, "references": {"table": "parents", "column": "id"}},
        }
    }
    await tables.apply({"parents": parent, "children": child})
    details = {"table": "children", "column": "parent_id", "references": "parents.id"}
    orphan = await tables.ask("POST", "/children", {"id": 1, "parent_id": 7})
    assert (orphan.status, orphan.json["error"]["code"]) == (400, "VALIDATION_FOREIGN_KEY_VIOLATION")
    assert orphan.json["message"] == "`parent_id` of `children` refers to a row of `parents` that is not there."
    assert orphan.json["error"]["details"] == details
    empty = await tables.ask("POST", "/children", {"id": 1})
    assert (empty.status, empty.json["error"]["code"]) == (400, "VALIDATION_NOT_NULL_VIOLATION")
    assert empty.json["error"]["details"]["column"] == "parent_id"
    await tables.insert("parents", {"id": 7})
    await tables.insert("children", {"id": 1, "parent_id": 7})
    for refusal in (
        await tables.ask("DELETE", "/parents/7"),
        await tables.ask("DELETE", "/parents?id=gt.1"),
        await tables.ask("PATCH", "/parents/7", {"id": 8}),
    ):
        assert (refusal.status, refusal.json["error"]["code"]) == (400, "VALIDATION_FOREIGN_KEY_VIOLATION")
        assert refusal.json["message"] == "`parent_id` of `children` refers to this row of `parents`."
        assert refusal.json["error"]["details"] == details
    answer = await tables.ask("PATCH", "/children/1", {"parent_id": 9})
    assert answer.json["error"]["details"] == details
    writes = [{"op": "insert", "table": "children", "values": [{"id": 2, "parent_id": 7}, {"id": 3, "parent_id": 9}]}]
    batch = await tables.ask("POST", "/data-batch", {"writes": writes})
    assert batch.json["error"]["details"] == {**details, "write": 0}
    nulled_answer = await tables.ask("PATCH", "/children/1", {"parent_id": None})
    assert nulled_answer.json["error"]["code"] == "VALIDATION_NOT_NULL_VIOLATION"
    foreign = await tables.ask("POST", "/children", {"nothing": 1})
    assert (foreign.status, foreign.json["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")


async def test_related_rows_are_embedded_in_both_directions(tables: Tables) -> None:
    authors = {"columns": {"id": {"type": "serial", "primaryKey": True}, "name": "text"}}
    books = {
        "columns": {
            "id": {"type": "serial", "primaryKey": True},
            "title": "text",
            "author_id": {"type": "integer", "references": "authors.id"},
        }
    }
    await tables.apply({"authors": authors, "books": books})
    await tables.insert("authors", {"name": "Ada"}, {"name": "Ben"}, {"name": "Cyd"})
    await tables.insert(
        "books", *({"title": f"Book {n}", "author_id": 1 + n % 2} for n in range(6)), {"title": "Orphan"}
    )
    assert await tables.list("books?select=title,author:authors(name)&order=id&limit=1") == [
        {"title": "Book 0", "author": {"name": "Ada"}}
    ]
    assert (await tables.list("books?select=author_id(name)&title=eq.Orphan")) == [{"author_id": None}]
    listed_authors = await tables.list("authors?select=name,books(title)&order=id&books.order=title.desc&books.limit=2")
    assert listed_authors == [
        {"name": "Ada", "books": [{"title": "Book 4"}, {"title": "Book 2"}]},
        {"name": "Ben", "books": [{"title": "Book 5"}, {"title": "Book 3"}]},
        {"name": "Cyd", "books": []},
    ]
    inner = await tables.list("authors?select=name,books!inner(title)&books.title=eq.Book%203")
    assert inner == [{"name": "Ben", "books": [{"title": "Book 3"}]}]
    listed_books = await tables.list("books?select=title,authors(name,books(title))&id=eq.1")
    assert [book["title"] for book in listed_books[0]["authors"]["books"]] == ["Book 0", "Book 2", "Book 4"]
    wrong = await tables.ask("GET", "/books?select=publisher(name)")
    assert (wrong.status, wrong.json["error"]["code"]) == (400, "VALIDATION_INVALID_SCHEMA")


async def test_json_and_arrays_are_filtered_and_shown_by_path(tables: Tables) -> None:
    columns = {"id": {"type": "serial", "primaryKey": True}, "data": "jsonb", "tags": "text[]"}
    await tables.apply({"notes": {"columns": columns}})
    await tables.insert(
        "notes",
        {"data": {"size": {"w": 3}, "name": "x", "list": [1, 2]}, "tags": ["a", "b"]},
        {"data": {"name": "y"}, "tags": []},
    )
    assert await tables.list("notes?select=data->>name,w:data->size->w&order=id") == [
        {"name": "x", "w": 3},
        {"name": "y", "w": None},
    ]
    for query, ids in (
        ("data->>name=eq.y", [2]), ('data=cs.{"size":{"w":3}}', [1]), ("tags=cs.{a}", [1]), ("tags=ov.{b,z}", [1]),
        ("tags=cd.{a,b,c}", [1, 2]), ("tags=eq.{a,b}", [1]), ("data->list->>0=eq.1", [1]),
    ):  # fmt: skip
        quoted_query = quote(query, safe="=.,")
        assert [row["id"] for row in await tables.list(f"notes?order=id&{quoted_query}")] == ids, query


async def test_what_is_in_json_has_one_text_whichever_database_reads_it(tables: Tables) -> None:
    columns = {
        "id": {"type": "serial", "primaryKey": True},
        "data": "jsonb",
        "kept": {"type": "text", "generated": "data->>'v'"},
    }
    await tables.apply({"notes": {"columns": columns}})
    texts = {
        "true": True, "false": False, "1": 1, "-1.5": -1.5, "100.0": 100.0, "0.0000001": 1e-7, "0.0": -0.0,
        "1" + "0" * 22: 10**22, "1" + "0" * 30: 1e30, "text": "text", "": "", "null": "null",
        'a "b" \\ c': 'a "b" \\ c',
        '[1, true, null, "x"]': [1, True, None, "x"], '{"b": 1, "aa": {"é": [2.5]}}': {"aa": {"é": [2.5]}, "b": 1},
    }  # fmt: skip
    await tables.insert("notes", *({"data": {"v": value}} for value in texts.values()), {"data": {"v": None}}, {})
    rows = await tables.list("notes?select=v:data->>v,kept&order=id")
    assert [row["v"] for row in rows] == [*texts, None, None]
    assert [row["kept"] for row in rows] == [*texts, None, None]
    assert await tables.list("notes?select=id&data->>v=eq.true") == [{"id": 1}]
    await tables.policy("notes", "true_ones", command="SELECT", role="anon", using_expression="data->>'v' = 'true'")
    assert await tables.list("notes?select=id", {}) == [{"id": 1}]


async def test_names_in_json_are_names_however_they_look(tables: Tables) -> None:
    names = ["$", "$[", "$.a", "[0]", "[", "a.b", "a b", 'a"b', '"', "a\\", "é", "a\nb", "'", "true", "A", "."]
    await tables.apply({"notes": {"columns": {"id": {"type": "serial", "primaryKey": True}, "data": "jsonb"}}})
    await tables.insert("notes", {"data": {name: {name: number} for number, name in enumerate(names)}}, {"data": [1]})
    for number, name in enumerate(names):
        path = f"data->{name}->>{name}"
        assert await tables.list(f"notes?select=id&{quote(path, safe='')}=eq.{number}") == [{"id": 1}], name
    literals = [f"data->'{name}'->>'{name}' = '{number}'" for number, name in enumerate(names) if name not in ("'",)]
    await tables.policy("notes", "all", command="SELECT", role="anon", using_expression=" and ".join(literals))
    assert await tables.list("notes?select=id", {}) == [{"id": 1}]


async def test_an_empty_list_of_rows_is_written(posts: Tables) -> None:
    answer = await posts.ask("POST", "/posts", [], prefer="return=representation,count=exact")
    assert (answer.status, answer.json, answer.headers["content-range"]) == (201, [], "*/0")
    assert (await posts.ask("POST", "/posts?on_conflict=id&select=id", [])).json == []
    assert (await posts.ask("POST", "/nothing", [])).status == 404
    batch = await posts.ask("POST", "/data-batch", {"writes": [{"op": "insert", "table": "posts", "values": []}]})
    assert batch.json["results"] == [{"op": "insert", "table": "posts", "count": 0, "rows": []}]


async def test_a_write_that_is_to_be_rolled_back_is_refused_and_not_kept(posts: Tables) -> None:
    before = await posts.list("posts?select=count")
    refusal = await posts.ask("POST", "/posts", {"title": "dry"}, prefer="return=representation,tx=rollback")
    assert (refusal.status, await posts.list("posts?select=count")) == (400, before)


async def test_a_call_of_a_function_is_told_what_there_is_instead(posts: Tables) -> None:
    answer = await posts.ask("POST", "/rpc/search_posts", {"q": "x"})
    assert (answer.status, answer.json["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert "view" in answer.json["error"]["remediation"]
    read = await posts.ask("GET", "/rpc/search_posts")
    assert read.status == 404
    with_parameter = await posts.ask("GET", "/rpc/search_posts?q=x")
    assert with_parameter.status == 400
    for refused_answer in (answer, with_parameter):
        assert refused_answer.json["error"]["remediation"].endswith(read.json["error"]["remediation"])


async def test_a_post_to_a_path_that_reads_as_a_row_is_told_that_the_path_is_wrong(tables: Tables) -> None:
    answer = await tables.ask("POST", "/notes/ingest", {"text": "Hello"})
    assert answer.status == 405
    assert answer.json["error"]["remediation"].startswith("Correct the path, which reads as a row of a table")


async def test_a_post_near_other_operations_is_told_their_paths(tables: Tables) -> None:
    answer = await tables.ask("POST", "/rag/ingest", {"text": "Hello"})
    remediation = answer.json["error"]["remediation"]
    assert (answer.status, remediation.startswith("Correct the path. Similar paths: POST ")) == (405, True)
    assert "POST /v1/{app_id}/rag/collections/{name}/ingest" in remediation


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("images/completions", "POST /v1/{app_id}/images/completions."),
        ("chat/completion", "POST /v1/chat/completions, POST /v1/{app_id}/chat/completions."),
    ],
)
async def test_a_path_that_leaves_out_its_app_is_told_where_the_app_belongs(
    tables: Tables, path: str, near: str
) -> None:
    answer = await tables.world.ask("POST", f"/v1/{path}", tables.world.owner, {"prompt": "A tree"})
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (404, "RESOURCE_NOT_FOUND")
    assert error["remediation"] == f"Correct the path. Similar paths: {near}"
    for unknown in ("app_zzzzzzzzzzzz", "nothing"):
        answer = await tables.world.ask("POST", f"/v1/{unknown}/posts", tables.world.owner, {"title": "A tree"})
        assert (answer.status, answer.json["error"]["code"]) == (404, "APP_NOT_FOUND")


async def test_a_table_is_also_reached_below_data_and_on_the_apps_own_host(posts: Tables) -> None:
    assert len(await posts.list("data/posts")) == 5
    host = f"{posts.app.subdomain}.localhost:8000"
    answer = await posts.world.ask("GET", "/data/posts?limit=1", posts.world.owner, host=host)
    assert (answer.status, len(answer.json)) == (200, 1)


async def test_a_table_that_there_is_not_is_not_found(tables: Tables) -> None:
    for target in ("/nothing", "/nothing/1"):
        answer = await tables.ask("GET", target)
        assert (answer.status, answer.json["error"]["code"]) == (404, "VALIDATION_TABLE_NOT_FOUND")
    for name in ("_catalogue", "sqlite_master", "pg_catalog.pg_user", "posts%22"):
        assert (await tables.ask("GET", f"/{name}")).status in (400, 404)


async def test_rows_of_one_upsert_with_the_same_key_are_written_in_their_order(tables: Tables) -> None:
    columns = {
        "id": {"type": "serial", "primaryKey": True},
        "code": {"type": "numeric", "unique": True},
        "n": "integer",
    }
    await tables.apply({"tags": {"columns": columns}})
    await tables.insert("tags", {"id": 1, "code": "1", "n": 0})
    rows = [{"id": 1, "code": "1.0", "n": 1}, {"code": 2, "n": 2}, {"code": "2.00", "n": 3}, {"code": None, "n": 4}]
    rows += [{"code": None, "n": 5}, {"id": 1, "code": "1.00", "n": 6}]
    answer = await tables.ask("POST", "/tags?on_conflict=code&select=code,n", rows)
    assert answer.status == 201, answer.content
    assert [row["n"] for row in answer.json] == [1, 2, 3, 4, 5, 6]
    assert [row["n"] for row in await tables.list("tags?order=n")] == [3, 4, 5, 6]
    undone_answer = await tables.ask("POST", "/data-changes/undo", {"action_id": answer.headers["x-action-id"]})
    assert undone_answer.status == 200, undone_answer.content
    assert await tables.list("tags") == [{"id": 1, "code": "1", "n": 0}]
    # Without `resolution=merge-duplicates`, the first row stays.
    ignored_answer = await tables.ask("POST", "/tags?on_conflict=code", rows, prefer="resolution=ignore-duplicates")
    assert [row["n"] for row in ignored_answer.json] == [2, 4, 5]
