"""Views: named queries that are read as tables are, and show each reader no more than the tables do."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import find_blocks
from tests.tools.data.conftest import ADA, BEN, Tables
from tests.tools.data.test_injection import CORPUS

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOP: dict[str, Any] = {
    "customers": {"columns": {"id": {"type": "uuid", "primaryKey": True}, "name": "text"}},
    "orders": {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "user_id": {"type": "uuid", "references": "customers.id"},
            "kind": "text",
            "price": "numeric",
            "count": "integer",
            "more": "jsonb",
            "at": "timestamptz",
        }
    },
}
VIEWS = {
    "lines": (
        "select o.id, o.kind, p.name as buyer, o.price * o.count as total, upper(o.kind) || '!' as loud, "
        "o.more->>'colour' as colour, o.more->'tags' as tags, o.price > 5 as dear, coalesce(o.count, 0) as pieces, "
        "o.at from orders o left join customers p on p.id = o.user_id where o.kind <> 'hidden'"
    ),
    "sums": (
        "select kind, count(*) as orders, sum(price * count) as total, avg(count) as mean, max(price) as most "
        "from orders group by kind"
    ),
    "mine": "select id, kind from orders where user_id = current_user_id()",
    "buyers": (
        "select name from customers where exists "
        "(select 1 from orders o where o.user_id = customers.id and o.price > 3)"
    ),
}


@pytest.fixture
async def shop(tables: Tables) -> Tables:
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": VIEWS}})
    assert answer.status == 200, answer.content
    await tables.insert("customers", {"id": ADA, "name": "Ada"}, {"id": BEN, "name": "Ben"})
    more = {"colour": "red", "tags": [1]}
    await tables.insert(
        "orders",
        {
            "id": 1,
            "user_id": ADA,
            "kind": "nut",
            "price": "2.50",
            "count": 2,
            "more": more,
            "at": "2026-01-01T00:00:00Z",
        },
        {"id": 2, "user_id": BEN, "kind": "nut", "price": "10", "count": 1},
        {"id": 3, "kind": "Bolt", "price": "9"},
        {"id": 4, "user_id": BEN, "kind": "hidden", "price": "1", "count": 1},
    )
    return tables


async def test_a_view_is_read_as_a_table_is(shop: Tables) -> None:
    first = {
        "id": 1, "kind": "nut", "buyer": "Ada", "total": "5.00", "loud": "NUT!", "colour": "red", "tags": [1],
        "dear": False, "pieces": 2, "at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    rows = await shop.list("lines")
    assert rows[0] == first
    assert [(row["id"], row["buyer"], row["total"], row["pieces"], row["tags"]) for row in rows[1:]] == [
        (2, "Ben", "10", 1, None),
        (3, None, None, 0, None),
    ]
    assert await shop.list("lines?select=id,sum:total&total=gte.5&order=total.desc") == [
        {"id": 2, "sum": "10"},
        {"id": 1, "sum": "5.00"},
    ]
    assert await shop.list("data/lines?select=id&or=(buyer.is.null,colour.eq.red)&dear=is.true") == [{"id": 3}]
    assert await shop.list("lines?select=kind,count(),total.sum()&order=kind") == [
        {"kind": "Bolt", "count": 1, "sum": None},
        {"kind": "nut", "count": 2, "sum": "15.00"},
    ]
    answer = await shop.ask("GET", "/lines?select=id&order=loud.desc,id&limit=1&offset=1", prefer="count=exact")
    assert (answer.json, answer.headers["content-range"]) == ([{"id": 2}], "1-1/3")
    exported_answer = await shop.ask("GET", "/data-export/lines?select=id,loud&id=lt.3")
    assert exported_answer.content == b"id,loud\r\n1,NUT!\r\n2,NUT!\r\n"


async def test_a_view_may_group(shop: Tables) -> None:
    assert await shop.list("sums?order=orders.desc,kind") == [
        {"kind": "nut", "orders": 2, "total": "15.00", "mean": 1.5, "most": "10"},
        {"kind": "Bolt", "orders": 1, "total": None, "mean": None, "most": "9"},
        {"kind": "hidden", "orders": 1, "total": "1", "mean": 1.0, "most": "1"},
    ]
    assert await shop.list("sums?select=kind&total=gt.9.99&most=eq.10.0") == [{"kind": "nut"}]


async def test_a_view_shows_each_reader_the_rows_that_the_tables_show_them(shop: Tables) -> None:
    refusal = await shop.ask("GET", "/lines", None, {})
    assert (refusal.status, refusal.json["error"]["code"]) == (401, "AUTH_RLS_REQUIRES_USER_JWT")
    ada = await shop.user(ADA)
    for view in VIEWS:
        assert await shop.list(view, ada) == []
    await shop.ask("POST", "/rls", {"table_name": "orders", "user_column": "user_id"})
    [row] = await shop.list("lines?select=id,buyer", ada)
    # People are closed to her, so that the join finds nobody.
    assert row == {"id": 1, "buyer": None}
    assert await shop.list("sums?select=kind,orders,total", ada) == [{"kind": "nut", "orders": 1, "total": "5.00"}]
    assert await shop.list("mine", ada) == [{"id": 1, "kind": "nut"}]
    assert await shop.list("mine") == []
    assert await shop.list("buyers", ada) == []
    await shop.policy("customers", "all", command="SELECT", using_expression="name = 'Ben' or id = current_user_id()")
    assert (await shop.list("lines?select=id,buyer", ada)) == [{"id": 1, "buyer": "Ada"}]
    # Ben is shown, and the order by which he is a buyer is not.
    assert await shop.list("buyers", ada) == []
    assert await shop.list("buyers?order=name", await shop.user(BEN)) == [{"name": "Ben"}]
    assert await shop.list("buyers", x_platform_as_user=BEN) == [{"name": "Ben"}]
    # What filters say of rows that are hidden is nothing.
    assert await shop.list("lines?select=id&total=gt.5", ada) == []
    answer = await shop.ask("GET", "/sums", None, ada, prefer="count=exact")
    assert answer.headers["x-total-count"] == "1"


async def test_a_view_is_not_written_and_has_no_row_of_a_key(shop: Tables) -> None:
    batch = {"writes": [{"op": "insert", "table": "lines", "values": {"id": 9}}]}
    for method, path, body in (
        ("POST", "/lines", {"id": 9}),
        ("PATCH", "/lines?id=eq.1", {"kind": "x"}),
        ("PATCH", "/lines/1", {"kind": "x"}),
        ("DELETE", "/lines?id=eq.1", None),
        ("DELETE", "/lines/1", None),
        ("POST", "/data-batch", batch),
    ):
        answer = await shop.ask(method, path, body)
        assert (answer.status, answer.json["error"]["code"]) == (400, "DATA_VIEW_READ_ONLY"), (method, path)
    assert (await shop.ask("GET", "/lines/1")).status == 400
    answer = await shop.ask("POST", "/rls", {"table_name": "lines", "user_column": "id"})
    assert (answer.status, "is a view" in answer.json["error"]["message"]) == (404, True), answer.content
    assert answer.json["error"]["remediation"] == "Name `orders` or `customers` instead."
    for method, path, request_body in (
        ("POST", "/realtime/configure", {"tables": ["lines"]}),
        ("DELETE", "/realtime/lines", None),
        ("GET", "/realtime/changes?table=lines", None),
    ):
        answer = await shop.ask(method, path, request_body)
        assert (answer.status, answer.json["error"]["code"]) == (400, "REALTIME_VIEW"), (method, path, answer.content)
        assert "Follow `orders` and `customers`" in answer.json["error"]["remediation"]
    imported_answer = await shop.world.ask(
        "POST", f"{shop.base}/data-import/lines", shop.world.owner, content=b"id\r\n1\r\n"
    )
    assert imported_answer.status in (400, 404)


async def test_a_view_keeps_the_references_of_the_columns_that_it_shows_as_they_are(shop: Tables) -> None:
    views = {
        **VIEWS,
        "cheap": "select id, user_id, price from orders where price < 10",
        "persons": "select id, name from customers where name <> 'Nobody'",
        "known": "select p.id, p.name, o.kind from customers p join orders o on o.user_id = p.id",
        "loud": "select upper(kind) as kind, user_id from orders",
    }
    await shop.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": views}})
    assert (await shop.ask("GET", "/schema/cheap")).json["columns"]["user_id"]["references"]["table"] == "customers"
    # From a view to the table that it refers to, and back.
    assert await shop.list("cheap?select=id,customers(name)&order=id") == [
        {"id": 1, "customers": {"name": "Ada"}},
        {"id": 3, "customers": None},
        {"id": 4, "customers": {"name": "Ben"}},
    ]
    assert await shop.list("customers?select=name,cheap(id)&order=name&cheap.price=gt.1") == [
        {"name": "Ada", "cheap": [{"id": 1}]},
        {"name": "Ben", "cheap": []},
    ]
    newest = "customers?select=name,cheap(id)&order=name&cheap.order=id.desc&cheap.limit=1&cheap.price=lt.3"
    assert [row["cheap"] for row in await shop.list(newest)] == [[{"id": 1}], [{"id": 4}]]
    # Of a view of one table a row has one, of a view that joins some it may have many.
    assert await shop.list("orders?select=id,persons!inner(name)&persons.name=eq.Ben&order=id") == [
        {"id": 2, "persons": {"name": "Ben"}},
        {"id": 4, "persons": {"name": "Ben"}},
    ]
    assert await shop.list("orders?select=id,known(kind)&id=eq.2&known.order=kind") == [
        {"id": 2, "known": [{"kind": "hidden"}, {"kind": "nut"}]}
    ]
    assert await shop.list("persons?select=name,loud(kind),cheap(id)&order=name&limit=1") == [
        {"name": "Ada", "loud": [{"kind": "NUT"}], "cheap": [{"id": 1}]}
    ]
    for query in (
        "sums?select=kind,customers(name)",
        "customers?select=name,sums(kind)",
        "lines?select=customers(name)",
    ):
        answer = await shop.ask("GET", f"/{query}")
        assert (answer.status, "as they are" in answer.json["error"]["remediation"]) == (400, True), query
    # Whoever embeds a view sees what its tables show them.
    ada = await shop.user(ADA)
    await shop.policy("customers", "all", command="SELECT", using_expression="true")
    assert [row["cheap"] for row in await shop.list("customers?select=name,cheap(id)&order=name", ada)] == [[], []]
    await shop.ask("POST", "/rls", {"table_name": "orders", "user_column": "user_id"})
    assert [row["cheap"] for row in await shop.list("customers?select=name,cheap(id)&order=name", ada)] == [
        [{"id": 1}],
        [],
    ]
    assert await shop.list("customers?select=name,cheap!inner(id)", ada) == [{"name": "Ada", "cheap": [{"id": 1}]}]


async def test_the_simulator_compares_the_rows_of_views(shop: Tables) -> None:
    await shop.ask("POST", "/rls", {"table_name": "orders", "user_column": "user_id"})

    async def simulate(view: str) -> list[list[str]]:
        request = {"table": view, "viewers": ["anon", ADA, BEN], "order": next(iter(ORDERED[view]))}
        answer = await shop.ask("POST", "/rls/simulate", request)
        assert answer.status == 200, answer.content
        return [each["seen_by"] for each in answer.json["rows"]]

    # The names of buyers are of a table that is closed, so that nobody sees these rows as the owner does.
    assert await simulate("lines") == [[], [], []]
    await shop.policy("customers", "all", command="SELECT", role="user", using_expression="true")
    assert await simulate("lines") == [[ADA], [BEN], []]
    # Each sums what they see: only the hidden order is all of its kind.
    assert await simulate("sums") == [[], [BEN], []]
    assert await simulate("buyers") == [[BEN]]


ORDERED = {"lines": ["id"], "sums": ["kind"], "buyers": ["name"]}


async def test_the_advisor_names_views_that_are_open_as_a_whole(shop: Tables) -> None:
    async def list_open() -> set[tuple[str, str]]:
        findings = (await shop.ask("GET", "/rls")).json["open_tables"]
        return {(each["table"], each["caller"]) for each in findings}

    await shop.policy("orders", "some", command="SELECT", using_expression="price > 5")
    assert await list_open() == set()
    answer = await shop.policy("orders", "all", command="SELECT", role="user", using_expression="true")
    warning = "The view `sums` of `orders`: any signed-in user may SELECT any row."
    assert warning in answer["warnings"]
    assert await list_open() == {(name, "user") for name in ("orders", "lines", "sums", "mine")}
    await shop.policy("customers", "all", command="SELECT", using_expression="true")
    assert ("buyers", "anon") in await list_open()
    assert warning in (await shop.ask("GET", "/config")).json["open_tables"]
    views = {**VIEWS, "all_kinds": "select kind from orders group by kind"}
    applied_answer = await shop.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": views}})
    assert applied_answer.json["warnings"] == [
        "The view `all_kinds` of `orders`: any signed-in user may SELECT any row."
    ]


async def test_views_are_shown_changed_and_dropped_with_the_schema(shop: Tables) -> None:
    schema = (await shop.ask("GET", "/schema")).json["schema"]
    assert schema["views"] == VIEWS
    description = (await shop.ask("GET", "/schema/sums")).json
    assert (description["query"], description["columns"]["orders"]["type"]) == (VIEWS["sums"], "integer")
    assert (await shop.ask("POST", "/schema/apply", {"schema": schema})).json["applied"] == 0
    # A document that does not speak of views leaves them.
    assert (await shop.apply(SHOP))["applied"] == 0
    assert len(await shop.list("sums")) == 3
    # What a view reads is not dropped under it.
    answer = await shop.ask(
        "POST", "/schema/apply", {"schema": {"tables": {**SHOP, "customers": {
            "columns": {"id": {"type": "uuid", "primaryKey": True}}, "_dropColumns": ["name"]}}}})  # fmt: skip
    assert (answer.status, "The view `lines`" in answer.json["error"]["message"]) == (400, True)
    changed_views = {"sums": "select kind as sort, count(*) as n from orders group by kind"}
    dry = await shop.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": changed_views}, "dry_run": True})
    assert {each["description"] for each in dry.json["statements"]} == {
        "change the view sums", "drop the view lines", "drop the view mine", "drop the view buyers",
    }  # fmt: skip
    await shop.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": changed_views}})
    assert await shop.list("sums?sort=eq.nut") == [{"sort": "nut", "n": 2}]
    assert (await shop.ask("GET", "/lines")).status == 404


MANY_JOINS = "select o.id from orders o" + "".join(f" join orders o{n} on o{n}.id = o.id" for n in range(8))  # noqa: S608
MANY_COLUMNS = "select " + ", ".join(f"id as c{n}" for n in range(201)) + " from orders"  # noqa: S608
UNSAFE = {
    "select id from orders; drop table orders": "and nothing more",
    "drop table orders": "and nothing more",
    "insert into orders (id) values (9)": "and nothing more",
    "select 1 as one": "and nothing more",
    "select id from orders limit 1": "no order and no limit",
    "select id from orders order by id": "no order and no limit",
    "select distinct id from orders": "distinct",
    "select id from orders union select id from orders": "and nothing more",
    "with x as (select id from orders) select id from x": "with",
    "select id from orders group by id having count(*) > 1": "having",
    "select id from _catalogue": "not a table of this app",
    "select document from _catalogue": "not a table of this app",
    "select rolname from pg_catalog.pg_roles": "tables of this app",
    "select id from (select id from orders) o": "tables of this app",
    "select id from other.orders": "tables of this app",
    "select id from base": "cannot be made of views",
    "select o.id from orders o, customers p": "joined by",
    "select o.id from orders o cross join customers p": "joined by",
    "select o.id from orders o right join customers p on p.id = o.user_id": "joined by",
    "select o.id from orders o join customers p using (id)": "joined by",
    "select o.id from orders o join orders o on true": "names two tables",
    "select id from orders o join customers p on p.id = o.user_id": "several tables",
    "select * from orders": "needs a name",
    "select o.* from orders o": "name",
    "select count(*) from orders": "needs a name",
    "select count(distinct kind) as n from orders": "DISTINCT",
    "select sum(kind) as n from orders": "takes numbers",
    "select kind, count(*) as n from orders": "group by",
    "select kind, kind from orders": "name of its own",
    'select kind as "a""b" from orders': "not a name",
    'select kind as "_x; drop" from orders': "not a name",
    "select pg_sleep(9) as n from orders": "PG_SLEEP",
    "select version() as n from orders": "may not use",
    "select current_setting('x') as n from orders": "CURRENT_SETTING",
    "select row_number() over () as n from orders": "may not use",
    "select id from orders where id > 0 for update": "locks",
    "select id from orders tablesample system (1)": "tables of this app",
    "select id from generate_series(1, 10) as id": "tables of this app",
    "select id from orders where id in (select id from _usage)": "not a table of this app",
    "select id from orders where exists (select 1 from pg_class)": "not a table of this app",
    "select id from " + "(" * 900 + "orders" + ")" * 900: "",
    MANY_COLUMNS: "200 columns",
    MANY_JOINS: "more than 8 tables",
    "select " + "id + " * 60 + "id as n from orders": "nested",
    "select id from orders where " + "id > 0 or " * 400 + "id > 0": "4000 characters",
    "": "expression",
}


async def test_what_is_not_a_safe_select_is_refused(shop: Tables) -> None:
    for text, part in UNSAFE.items():
        views = {"base": "select id from orders", "bad": text}
        answer = await shop.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": views}})
        error = answer.json["error"]
        assert (answer.status, error["code"]) == (400, "VALIDATION_INVALID_SCHEMA"), (text, answer.content)
        assert part in error["message"], (text, error["message"])
    for name in [*CORPUS[:20], "_mine", "data", "orders", "Upper"]:
        views = {name: "select id from orders"}
        answer = await shop.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": views}})
        assert answer.status == 400, name
    assert len(await shop.list("lines")) == 3


async def test_values_in_a_view_are_values_however_they_look(shop: Tables) -> None:
    texts = [text for text in CORPUS if len(text) < 100]
    for start in range(0, len(texts), 20):
        part = texts[start : start + 20]
        literals = ["'" + text.replace("'", "''") + "'" for text in part]
        items = ", ".join(f"{literal} as c{number}" for number, literal in enumerate(literals))
        views = {"odd": f"select id, {items} from orders where kind <> {literals[0]} and id = 1"}  # noqa: S608
        answer = await shop.ask("POST", "/schema/apply", {"schema": {"tables": SHOP, "views": views}})
        assert answer.status == 200, answer.content
        [row] = await shop.list("odd")
        assert [row[f"c{number}"] for number in range(len(part))] == part


async def test_the_examples_of_the_documentation_are_a_schema(tables: Tables) -> None:
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    shop, views = (json.loads(block) for block in find_blocks(page, "json"))
    answer = await tables.ask("POST", "/schema/apply", {"schema": {**shop, **views}})
    assert answer.status == 200, answer.content
    await tables.insert("buyers", {"name": "Ada"})
    orders = [{"buyer_id": 1, "kind": "nut", "price": 60, "quantity": 2}, {"kind": "nut", "price": 1, "quantity": 1}]
    await tables.insert("orders", *orders)
    assert await tables.list("sales?total=gt.100&order=total.desc") == [{"id": 1, "buyer": "Ada", "total": "120.00"}]
    assert await tables.list("sales_by_kind") == [{"kind": "nut", "orders": 2, "total": "121.00"}]
