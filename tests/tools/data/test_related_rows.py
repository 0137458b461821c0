"""Related rows as PostgREST's clients ask for them most: counted, whether there are any, and after a write."""

from typing import Any

import pytest
import pytest_asyncio

from tests.tools.data.conftest import ADA, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTHORS: dict[str, Any] = {"columns": {"id": {"type": "serial", "primaryKey": True}, "name": {"type": "text"}}}
BOOKS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "author_id": {"type": "integer", "references": "authors.id"},
        "editor_id": {"type": "integer", "references": "authors.id"},
        "title": {"type": "text"},
        "price": {"type": "integer"},
        "meta": {"type": "jsonb"},
    }
}
SHELVES: dict[str, Any] = {
    "columns": {
        "room": {"type": "text", "primaryKey": True},
        "number": {"type": "numeric", "primaryKey": True},
        "book_id": {"type": "integer", "references": "books.id"},
    }
}
NOTES: dict[str, Any] = {
    "columns": {"book_id": {"type": "integer", "references": "books.id"}, "text": {"type": "text"}}
}
TALLIES: dict[str, Any] = {"columns": {"id": {"type": "serial", "primaryKey": True}, "count": {"type": "integer"}}}
BY_AUTHOR = "books!author_id"


@pytest_asyncio.fixture(loop_scope="module")
async def library(tables: Tables) -> Tables:
    schema = {"authors": AUTHORS, "books": BOOKS, "shelves": SHELVES, "notes": NOTES, "tallies": TALLIES}
    await tables.apply(schema)
    await tables.insert("authors", {"name": "Ursula"}, {"name": "Octavia"}, {"name": "Iris"})
    await tables.insert(
        "books",
        {"author_id": 1, "title": "Rocannon", "price": 5, "editor_id": 3},
        {"author_id": 1, "title": "Planet", "price": 7},
        {"author_id": 2, "title": "Kindred", "price": 9},
        {"title": "Anonymous"},
    )
    return tables


@pytest.mark.parametrize(
    ("query", "expected_books"),
    [
        (f"authors?select=name,{BY_AUTHOR}(count)", [[{"count": 2}], [{"count": 1}], [{"count": 0}]]),
        (f"authors?select={BY_AUTHOR}(n:count())&books.price=gt.5", [[{"n": 1}], [{"n": 1}], [{"n": 0}]]),
        (
            f"authors?select={BY_AUTHOR}(price.sum(),price.max())",
            [[{"sum": 12, "max": 7}], [{"sum": 9, "max": 9}], [{"sum": None, "max": None}]],
        ),
        (
            f"authors?select={BY_AUTHOR}(editor_id,count())",
            [[{"editor_id": 3, "count": 1}, {"editor_id": None, "count": 1}], [{"editor_id": None, "count": 1}], []],
        ),
    ],
)
async def test_related_rows_are_aggregated_for_each_row(library: Tables, query: str, expected_books: list[Any]) -> None:
    assert [row["books"] for row in await library.list(query)] == expected_books


async def test_count_is_an_aggregate_unless_it_is_a_column(library: Tables) -> None:
    assert await library.list("books?select=count") == [{"count": 4}]
    assert await library.list("books?select=n:count&price=gt.5") == [{"n": 2}]
    await library.insert("tallies", {"count": 7})
    assert await library.list("tallies?select=count") == [{"count": 7}]


async def test_rows_are_found_by_whether_they_have_related_ones(library: Tables) -> None:
    async def names(query: str) -> list[str]:
        return [row["name"] for row in await library.list(query)]

    assert await names(f"authors?select=name,{BY_AUTHOR}(title)&books=is.null") == ["Iris"]
    assert await names(f"authors?select=name,{BY_AUTHOR}(title)&books=not.is.null") == ["Ursula", "Octavia"]
    authors = await library.list(f"authors?select=name,{BY_AUTHOR}(title)&books=is.null&books.price=gt.8")
    assert authors == [{"name": "Ursula", "books": []}, {"name": "Iris", "books": []}]
    orphans = await library.list("books?select=title,author:authors!author_id(name)&author=is.null")
    assert orphans == [{"title": "Anonymous", "author": None}]
    refusal = await library.ask("GET", f"/authors?select=name,{BY_AUTHOR}(title)&books=eq.Planet")
    assert refusal.status == 400
    assert "books.column=operator.value" in refusal.json["hint"]


async def test_a_reference_is_also_named_by_its_constraint(library: Tables) -> None:
    for hint in ("author_id", "books_author_id_fkey"):
        [row] = await library.list(f"books?select=authors!{hint}(name)&id=eq.1")
        assert row == {"authors": {"name": "Ursula"}}
        rows = await library.list(f"authors?select=books!{hint}(title)&id=eq.2")
        assert rows == [{"books": [{"title": "Kindred"}]}]
    [row] = await library.list("books?select=authors!books_editor_id_fkey(name)&id=eq.1")
    assert row == {"authors": {"name": "Iris"}}
    refusal = await library.ask("GET", "/shelves?select=books!nonsense(title)")
    assert refusal.json["message"] == "`shelves` and `books` are not related by `nonsense`."


async def test_a_write_answers_related_rows_and_what_is_in_json(library: Tables) -> None:
    select = "title,writer:authors!author_id(name),size:meta->>size,price::text"
    answer = await library.ask(
        "POST", f"/books?select={select}", [{"title": "B", "author_id": 2, "meta": {"size": 3}}, {"title": "A"}]
    )
    assert answer.json == [
        {"title": "B", "size": "3", "price": None, "writer": {"name": "Octavia"}},
        {"title": "A", "size": None, "price": None, "writer": None},
    ]
    changed_answer = await library.ask("PATCH", f"/books?title=eq.A&select={select}", {"author_id": 1, "price": 4})
    assert changed_answer.json == [{"title": "A", "size": None, "price": "4", "writer": {"name": "Ursula"}}]
    upserted_answer = await library.ask(
        "POST", "/authors?on_conflict=id&select=books!author_id(count)", {"id": 1, "name": "Ursula"}
    )
    assert upserted_answer.json == {"books": [{"count": 3}]}
    removed_answer = await library.ask("DELETE", f"/books?title=in.(A,B)&select={select}")
    assert [row["writer"] for row in removed_answer.json] == [{"name": "Octavia"}, {"name": "Ursula"}]
    assert await library.list("books?title=in.(A,B)") == []


async def test_a_write_of_many_rows_answers_each_with_its_related_rows_in_their_order(library: Tables) -> None:
    given_rows = [{"room": "N", "number": f"{900 - number}.50", "book_id": number % 3 + 1} for number in range(900)]
    answer = await library.ask("POST", "/shelves?select=number,books(title)", given_rows)
    titles = ["Rocannon", "Planet", "Kindred"]
    assert [row["books"]["title"] for row in answer.json] == [titles[number % 3] for number in range(900)]
    assert [row["number"] for row in answer.json] == [row["number"] for row in given_rows]


async def test_a_write_answers_no_related_rows_of_a_table_without_a_key_and_no_aggregates(library: Tables) -> None:
    assert (await library.ask("POST", "/notes?select=text", {"text": "x"})).json == {"text": "x"}
    refusal = await library.ask("POST", "/notes?select=text,books(title)", {"text": "y"})
    assert (refusal.status, refusal.json["message"]) == (
        400,
        "`notes` has no primary key, so a write to it returns plain columns only.",
    )
    assert (await library.ask("PATCH", "/books?id=eq.1&select=count()", {"price": 1})).status == 400
    assert await library.list("notes?select=text") == [{"text": "x"}]
    assert await library.list("books?select=price&id=eq.1") == [{"price": 5}]


async def test_a_write_answers_related_rows_only_as_far_as_policies_show_them(library: Tables) -> None:
    await library.policy("books", "open", using_expression="true")
    await library.policy("authors", "some", using_expression="id > 1", command="SELECT")
    user = await library.user(ADA)
    select = "title,authors!author_id(name)"
    for author_id, expected_author in ((1, None), (2, {"name": "Octavia"})):
        row = {"title": "New", "author_id": author_id}
        answer = await library.ask("POST", f"/books?select={select}", row, user)
        assert (answer.status, answer.json) == (201, {"title": "New", "authors": expected_author})
        removed_answer = await library.ask("DELETE", f"/books?title=eq.New&select={select}", None, user)
        assert removed_answer.json == [{"title": "New", "authors": expected_author}]


async def test_the_rows_that_a_write_wrote_are_counted_where_that_is_preferred(library: Tables) -> None:
    for prefer in ("count=exact", "count=exact,return=minimal"):
        answer = await library.ask("POST", "/books", [{"title": "C"}, {"title": "C"}], prefer=prefer)
        changed_answer = await library.ask("PATCH", "/books?title=eq.C", {"price": 1}, prefer=prefer)
        removed_answer = await library.ask("DELETE", "/books?title=eq.C", None, prefer=prefer)
        nothing = await library.ask("DELETE", "/books?title=eq.C", None, prefer=prefer)
        counts = [each.headers.get("content-range") for each in (answer, changed_answer, removed_answer, nothing)]
        assert counts == ["*/2", "*/2", "*/2", "*/0"]


async def test_rows_are_ordered_by_a_value_of_the_row_that_they_refer_to(library: Tables) -> None:
    async def titles(query: str) -> list[str]:
        return [row["title"] for row in await library.list(f"books?select=title,{query}")]

    by_author = "author:authors!author_id(name)&order=author(name)"
    assert await titles(by_author) == ["Kindred", "Rocannon", "Planet", "Anonymous"]
    assert await titles(f"{by_author}.desc") == ["Anonymous", "Rocannon", "Planet", "Kindred"]
    assert await titles(f"{by_author}.desc.nullslast,title") == ["Planet", "Rocannon", "Kindred", "Anonymous"]
    # What is not embedded is not ordered by, either.
    assert (await titles(f"{by_author}&author.name=neq.Ursula"))[0] == "Kindred"
    assert await titles(f"{by_author}&limit=1&offset=1") == ["Rocannon"]
    rows = await library.list(
        "authors?select=name,books!author_id(title,editor:authors!editor_id(name))&id=eq.1"
        "&books.order=editor(name).nullsfirst&books.limit=1"
    )
    assert rows[0]["books"] == [{"title": "Planet", "editor": None}]


async def test_exact_numbers_of_related_rows_have_the_order_of_numbers(tables: Tables) -> None:
    await tables.apply(
        {
            "prices": {"columns": {"amount": {"type": "numeric", "primaryKey": True}}},
            "offers": {
                "columns": {
                    "id": {"type": "serial", "primaryKey": True},
                    "amount": {"type": "numeric", "references": "prices.amount"},
                }
            },
        }
    )
    await tables.insert("prices", *({"amount": each} for each in ("9", "10.5", "100")))
    await tables.insert("offers", *({"amount": each} for each in ("100", "9", "10.5")))
    rows = await tables.list("offers?select=amount,prices(amount)&order=prices(amount)")
    assert [row["amount"] for row in rows] == ["9", "10.5", "100"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("books?order=author(name)", "only if `select` names it too"),
        (f"authors?select=name,{BY_AUTHOR}(title)&order=books(title)", "of which each may have several"),
        ("shelves?select=books(title)&order=books(nothing)", "`order=nothing` is not a column of `books`"),
        ("shelves?select=books(meta)&order=books(meta)", "which has no order"),
        (f"authors?select=name,...{BY_AUTHOR}(title)", "only the values of the one row"),
        ("shelves?select=book_id,...books(book_id:id)", "`book_id` is selected twice"),
        ("shelves?select=*,...books(count())", "only the values of the one row"),
        ("shelves?select=...books(title),...books(title)", "`title` is selected twice"),
    ],
)
async def test_what_cannot_be_ordered_by_or_spread_is_refused(library: Tables, query: str, message: str) -> None:
    refusal = await library.ask("GET", f"/{query}")
    assert refusal.status == 400
    assert message in refusal.json["message"]


async def test_values_of_a_related_row_are_spread_among_those_of_the_row(library: Tables) -> None:
    rows = await library.list("books?select=title,...authors!author_id(writer:name)&id=lt.3")
    assert rows == [{"title": "Rocannon", "writer": "Ursula"}, {"title": "Planet", "writer": "Ursula"}]
    assert await library.list("books?select=id,...authors!author_id(name)&order=id.desc&limit=1") == [
        {"id": 4, "name": None}
    ]
    await library.insert("shelves", {"room": "N", "number": "1", "book_id": 3}, {"room": "S", "number": "2"})
    query = "shelves?select=room,...books(title,...authors!author_id(name),editor:authors!editor_id(name))&order=room"
    assert await library.list(query) == [
        {"room": "N", "title": "Kindred", "name": "Octavia", "editor": None},
        {"room": "S", "title": None, "name": None, "editor": None},
    ]
    inner = await library.list("shelves?select=room,...books!inner(title)&books.price=gt.5&order=books(title)")
    assert inner == [{"room": "N", "title": "Kindred"}]
    csv = await library.ask("GET", "/shelves?select=room,...books(title)&order=room", accept="text/csv")
    assert csv.content.decode().split() == ["room,title", "N,Kindred", "S,"]
    answer = await library.ask("PATCH", "/shelves?room=eq.S&select=room,...books(title)", {"book_id": 1})
    assert answer.json == [{"room": "S", "title": "Rocannon"}]


async def test_a_related_row_that_the_reader_may_not_see_is_neither_spread_nor_ordered_by(library: Tables) -> None:
    await library.policy("books", "all", command="SELECT", role="anon", using_expression="true")
    await library.policy("authors", "some", command="SELECT", role="anon", using_expression="name <> 'Octavia'")
    spread = "books?select=title,...authors!author_id(name)"
    # As the owner, Octavia's book comes first; a visitor has it among those without an author.
    assert [row["name"] for row in await library.list(f"{spread}&order=authors(name),id")] == [
        "Octavia", "Ursula", "Ursula", None
    ]  # fmt: skip
    for direction, first in (("", "Rocannon"), (".desc", "Kindred"), (".nullsfirst", "Kindred")):
        rows = await library.list(f"{spread}&order=authors(name){direction},id", {})
        assert rows[0]["title"] == first, direction
        assert {row["name"] for row in rows} == {"Ursula", None}
    shown_rows = await library.list(f"{spread}&order=authors(name),id.desc", {})
    assert [row["title"] for row in shown_rows] == ["Planet", "Rocannon", "Anonymous", "Kindred"]
    assert [row["title"] for row in await library.list("books?select=title,...authors!author_id!inner(name)", {})] == [
        "Rocannon", "Planet"
    ]  # fmt: skip


async def test_related_rows_of_which_nothing_is_selected_are_there_for_filters_and_orders(library: Tables) -> None:
    assert await library.list(f"authors?select=name,{BY_AUTHOR}()&books=is.null") == [{"name": "Iris"}]
    authors = await library.list(f"authors?select=name,{BY_AUTHOR}!inner()&books.price=gt.8")
    assert authors == [{"name": "Octavia"}]
    ordered_rows = await library.list("books?select=title,author:authors!author_id()&order=author(name),id&limit=2")
    assert ordered_rows == [{"title": "Kindred"}, {"title": "Rocannon"}]
    csv = await library.ask("GET", f"/authors?select=name,{BY_AUTHOR}()&id=eq.1", accept="text/csv")
    assert csv.content.decode().split() == ["name", "Ursula"]


async def test_what_two_tables_have_in_common_is_named_where_they_are_not_related(tables: Tables) -> None:
    def refer(table: str) -> dict[str, Any]:
        return {"type": "integer", "primaryKey": True, "references": f"{table}.id"}

    plain = {"columns": {"id": {"type": "serial", "primaryKey": True}, "name": "text"}}
    link_table = {"columns": {"post_id": refer("posts"), "tag_id": refer("tags")}}
    await tables.apply({"posts": plain, "tags": plain, "post_tags": link_table})
    refusal = await tables.ask("GET", "/posts?select=name,tags(name)")
    assert refusal.json["hint"] == "They are related by `post_tags`: write `post_tags(tags(name))`."
    assert await tables.list("posts?select=name,post_tags(tags(name))") == []


async def test_a_table_that_refers_to_itself_is_embedded_in_either_direction(tables: Tables) -> None:
    columns = {
        "id": {"type": "serial", "primaryKey": True},
        "name": "text",
        "parent_id": {"type": "integer", "references": "nodes.id"},
    }
    await tables.apply({"nodes": {"columns": columns}})
    await tables.insert("nodes", {"name": "a"}, {"name": "b", "parent_id": 1}, {"name": "c", "parent_id": 1})
    for hint in ("parent_id", "nodes_parent_id_fkey"):
        [row, *_] = await tables.list(f"nodes?select=name,below:nodes!{hint}(name)&order=id")
        assert row == {"name": "a", "below": [{"name": "b"}, {"name": "c"}]}
    [*_, row] = await tables.list("nodes?select=name,above:parent_id(name)&order=id")
    assert row == {"name": "c", "above": {"name": "a"}}
    refusal = await tables.ask("GET", "/nodes?select=nodes(name)")
    assert "`parent_id(...)`, `nodes!parent_id(...)`" in refusal.json["message"]


async def test_a_table_that_refers_to_itself_is_ordered_by_filtered_by_and_spread(tables: Tables) -> None:
    columns = {
        "id": {"type": "serial", "primaryKey": True},
        "name": "text",
        "parent_id": {"type": "integer", "references": "nodes.id"},
    }
    await tables.apply({"nodes": {"columns": columns}})
    await tables.insert(
        "nodes", {"name": "z"}, {"name": "a"}, {"name": "c", "parent_id": 1}, {"name": "b", "parent_id": 2}
    )
    rows = await tables.list("nodes?select=name,...parent_id(above:name)&order=parent_id(name).nullsfirst,name")
    assert [(row["name"], row["above"]) for row in rows] == [("a", None), ("z", None), ("b", "a"), ("c", "z")]
    inner = await tables.list("nodes?select=name,parent:parent_id!inner(name)&parent.name=eq.z")
    assert inner == [{"name": "c", "parent": {"name": "z"}}]
    assert [row["name"] for row in await tables.list("nodes?select=name,parent:parent_id(name)&parent=is.null")] == [
        "z", "a"
    ]  # fmt: skip
