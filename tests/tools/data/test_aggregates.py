"""Aggregates of rows, in groups or of all, and the order of vectors by their distance, alike on both databases."""

from typing import Any

import pytest

from tests.tools.data.conftest import Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

SALES: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "shop": {"type": "text"},
        "day": {"type": "date"},
        "pieces": {"type": "integer"},
        "big": {"type": "bigint"},
        "price": {"type": "numeric"},
        "weight": {"type": "double precision"},
        "more": {"type": "jsonb"},
        "place": {"type": "vector(2)"},
        "user_id": {"type": "uuid"},
    }
}


@pytest.fixture
async def sales(tables: Tables) -> Tables:
    await tables.apply({"sales": SALES})
    rows: list[dict[str, Any]] = [
        {"shop": "a", "day": "2024-01-01", "pieces": 1, "big": "9223372036854775807", "price": "0.10", "weight": 0.5},
        {"shop": "a", "day": "2024-01-02", "pieces": 2, "big": "9223372036854775807", "price": "0.2", "weight": 1.5},
        {"shop": "b", "day": "2024-01-02", "pieces": None, "big": None, "price": "10", "weight": None},
        {"shop": None, "day": None, "pieces": 4, "big": "-1", "price": "9", "weight": 2.0},
    ]
    vectors = [[1, 0], [0, 1], [0.9, 0.1], None]
    kinds = [{"kind": "x"}, {"kind": "y"}, {"kind": "x"}, None]
    for row, vector, kind in zip(rows, vectors, kinds, strict=True):
        row["place"], row["more"] = vector, kind
    await tables.insert("sales", *rows)
    return tables


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select=count()", [{"count": 4}]),
        ("select=count(),pieces.count()&id=gt.1", [{"count": 2}]),
        ("select=n:count()&id=gt.9", [{"n": 0}]),
        ("select=pieces.sum()&id=gt.9", [{"sum": None}]),
        ("select=pieces.sum(),big.sum()&big=not.is.null", [{"sum": "18446744073709551613"}]),
        ("select=s:pieces.sum(),t:price.sum(),w:weight.sum()", [{"s": 7, "t": "19.30", "w": 4.0}]),
        ("select=a:pieces.avg(),p:price.avg()", [{"a": 7 / 3, "p": 4.825}]),
        ("select=f:day.min(),l:day.max(),c:price.min(),d:price.max(),s:shop.max()",
         [{"f": "2024-01-01", "l": "2024-01-02", "c": "0.10", "d": "10", "s": "b"}]),
        ("select=shop,count(),price.sum()",
         [{"shop": "a", "count": 2, "sum": "0.30"}, {"shop": "b", "count": 1, "sum": "10"},
          {"shop": None, "count": 1, "sum": "9"}]),
        ("select=shop,count()&order=shop.desc&limit=2", [{"shop": None, "count": 1}, {"shop": "b", "count": 1}]),
        ("select=k:more->>kind,count()&order=more->>kind.desc.nullslast",
         [{"k": "y", "count": 1}, {"k": "x", "count": 2}, {"k": None, "count": 1}]),
        ("select=d:day::text,shop,count()&shop=eq.a&offset=1", [{"d": "2024-01-02", "shop": "a", "count": 1}]),
    ],
)  # fmt: skip
async def test_rows_are_aggregated(sales: Tables, query: str, rows: list[dict[str, Any]]) -> None:
    assert await sales.list(f"sales?{query}") == rows


async def test_groups_are_counted_and_sent_as_csv(sales: Tables) -> None:
    answer = await sales.ask("GET", "/sales?select=shop,count()", prefer="count=exact", accept="text/csv")
    assert dict(answer.pairs)["content-range"] == "0-2/3"
    assert answer.content == b"shop,count\r\na,2\r\nb,1\r\n,1\r\n"


@pytest.mark.parametrize(
    "query",
    ["select=shop.sum()", "select=sum()",
     "select=user_id.max()", "select=more,count()", "select=shop,count()&order=day",
     "select=nothing.sum()", "select=place.min()", "select=more->kind.max()", "order=shop.cosine.{1,2}",
     "order=place.cosine.{1}",
     "order=place.cosine.{1,x}", "order=place.cosine.{1,NaN}", "order=place.cosine.{1,1e999}"],
)  # fmt: skip
async def test_what_cannot_be_aggregated_or_measured_is_refused(sales: Tables, query: str) -> None:
    answer = await sales.ask("GET", f"/sales?{query}")
    assert answer.status == 400, answer.content


async def test_aggregates_are_of_rows_that_policies_open(sales: Tables) -> None:
    await sales.policy("sales", "some", using_expression="shop = 'a'", command="SELECT")
    assert await sales.list("sales?select=count(),pieces.sum()", by={}) == [{"count": 2, "sum": 3}]


@pytest.mark.parametrize(("metric", "ids"), [("cosine", [1, 3, 2, 4]), ("l2", [3, 1, 2, 4]), ("inner", [1, 3, 2, 4])])
async def test_rows_are_ordered_by_how_near_their_vectors_are(sales: Tables, metric: str, ids: list[int]) -> None:
    vector = "{0.8,0}" if metric != "l2" else "{0.9,0.05}"
    rows = await sales.list(f"sales?select=id&order=place.{metric}.{vector}")
    assert [row["id"] for row in rows] == ids
    nearest = await sales.list(f"sales?select=id&order=place.{metric}.{vector},id.desc&limit=1&shop=eq.b")
    assert nearest == [{"id": 3}]
