"""Checks and generated columns: what a row must fulfil and what is computed from it, alike on both databases."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from baobab.storage.data.files import FileStore
from baobab.tools.data.exchange.copying import copy_tables, survey_tables
from tests.tools.data.conftest import Tables
from tests.tools.data.test_injection import CORPUS

pytestmark = pytest.mark.asyncio(loop_scope="module")

ID = {"id": {"type": "integer", "primaryKey": True}}
ORDERS: dict[str, Any] = {
    "columns": {
        **ID,
        "name": {"type": "text"},
        "price": {"type": "numeric(10,2)"},
        "count": {"type": "integer"},
        "more": {"type": "jsonb"},
        "total": {"type": "numeric(12,2)", "generated": "price * count"},
        "twice": {"type": "integer", "generated": "count + count"},
        "label": {"type": "text", "generated": "lower(name) || ' x' || count::text", "unique": True},
        "is_large": {"type": "boolean", "generated": "price * count >= 100"},
        "size": {"type": "text", "generated": "more->>'size'"},
    },
    "checks": {"price_positive": "price > 0", "few": "count between 1 and 10 or name = 'bulk?'"},
}


async def _refuse(tables: Tables, method: str, path: str, body: Any) -> Any:
    answer = await tables.ask(method, path, body)
    assert answer.status == 400, answer.content
    return answer.json["error"]


async def test_a_generated_column_is_computed_from_its_row_and_follows_it(tables: Tables) -> None:
    await tables.apply({"orders": ORDERS})
    row = {"id": 1, "name": "Nut", "price": "12.50", "count": 3, "more": {"size": "L"}}
    [inserted_row] = await tables.insert("orders", {**row, "total": "1", "label": "mine"})
    computed_values = {"total": "37.50", "twice": 6, "label": "nut x3", "is_large": False, "size": "L"}
    assert inserted_row == {**row, **computed_values}
    changed_row = (await tables.ask("PATCH", "/orders/1", {"count": 8, "total": "5"})).json
    assert [changed_row[name] for name in computed_values] == ["100.00", 16, "nut x8", True, "L"]
    assert await tables.list("orders?select=id&total=gte.100&is_large=is.true&order=total.desc") == [{"id": 1}]
    assert (await tables.insert("orders", {"id": 2}))[0]["total"] is None
    refusal = await _refuse(tables, "PATCH", "/orders/1", {"total": "5"})
    assert "takes values" in refusal["message"]
    # The row names no "name", which stays "Nut".
    [upserted_row] = (await tables.ask("POST", "/orders?on_conflict=id", [{"id": 1, "price": 1, "count": 1}])).json
    assert (upserted_row["total"], upserted_row["label"]) == ("1.00", "nut x1")
    assert (await tables.ask("POST", "/orders?on_conflict=label", [row])).status == 400


async def test_a_row_that_breaks_a_check_is_refused_with_the_check_and_its_columns(tables: Tables) -> None:
    await tables.apply({"orders": ORDERS})
    await tables.insert("orders", {"id": 1, "price": 1, "count": 10}, {"id": 2})
    error = await _refuse(tables, "POST", "/orders", [{"id": 3}, {"id": 4, "price": 0}])
    assert error["code"] == "VALIDATION_CHECK_VIOLATION"
    assert error["details"] == {
        "table": "orders",
        "check": "price_positive",
        "columns": ["price"],
        "expression": "price > 0",
    }
    assert error["remediation"]
    assert (await _refuse(tables, "PATCH", "/orders/1", {"count": 11, "name": "x"}))["details"]["check"] == "few"
    # A condition that is null holds, as always in SQL.
    assert (await tables.ask("PATCH", "/orders/1", {"count": 11, "name": None})).status == 200
    assert (await tables.ask("PATCH", "/orders/1", {"count": 11, "name": "bulk?"})).status == 200
    assert len(await tables.list("orders")) == 2
    batch = [{"op": "insert", "table": "orders", "values": {"id": 5, "price": -1}}]
    error = await _refuse(tables, "POST", "/data-batch", {"writes": batch})
    assert (error["code"], error["details"]["check"], error["details"]["write"]) == (
        "VALIDATION_CHECK_VIOLATION", "price_positive", 0,
    )  # fmt: skip


async def test_a_generated_value_that_does_not_fit_its_type_is_refused(tables: Tables) -> None:
    await tables.apply({"orders": ORDERS})
    error = await _refuse(tables, "POST", "/orders", {"id": 1, "count": 2_000_000_000, "name": "bulk?"})
    assert (error["code"], error["details"]["column"]) == ("VALIDATION_CHECK_VIOLATION", "twice")
    assert error["details"]["columns"] == ["count"]


async def test_what_a_reference_changes_in_other_rows_must_fulfil_their_checks(tables: Tables) -> None:
    parent = {"type": "integer", "references": {"table": "parents", "column": "id", "onDelete": "SET NULL"}}
    children = {"columns": {**ID, "parent": parent}, "checks": {"has_parent": "parent is not null"}}
    await tables.apply({"parents": {"columns": ID}, "children": children})
    await tables.insert("parents", {"id": 1})
    await tables.insert("children", {"id": 1, "parent": 1})
    error = await _refuse(tables, "DELETE", "/parents/1", None)
    assert (error["code"], error["details"]["check"]) == ("VALIDATION_CHECK_VIOLATION", "has_parent")
    assert await tables.list("children") == [{"id": 1, "parent": 1}]


async def test_a_dry_run_says_which_rows_break_a_check_and_applying_it_changes_nothing(tables: Tables) -> None:
    plain = {"columns": {**ID, "n": "integer", "price": "numeric"}}
    await tables.apply({"a": plain})
    await tables.insert("a", *({"id": n, "n": n, "price": n} for n in range(1, 31)))
    columns = {
        **plain["columns"],
        "small": {"type": "smallint", "generated": "n * 5000"},
        "added": {"type": "integer", "default": 3},
    }
    checks = {
        "low": "n < 20",
        "cheap": "price * n <= 10000",
        "computed": "small < 20000 or added = 3",
        "new": "added > 3",
    }
    wanted_tables = {"a": {"columns": columns, "checks": checks}}
    dry = await tables.apply(wanted_tables, dry_run=True)
    found_faults = {
        each.get("check") or each["column"]: (each["rows"], len(each["examples"])) for each in dry["broken_checks"]
    }
    assert found_faults == {"low": (11, 10), "new": (30, 10), "small": (24, 10)}
    assert {"id": 20} in dry["broken_checks"][0]["examples"]
    error = await _refuse(tables, "POST", "/schema/apply", {"schema": {"tables": wanted_tables}})
    assert error["code"] == "SCHEMA_MIGRATION_FAILED"
    assert [each.get("check") for each in error["details"]["broken_checks"]] == ["low", "new", None]
    assert set((await tables.list("a?limit=1"))[0]) == {"id", "n", "price"}
    for n in range(7, 31):
        await tables.ask("DELETE", f"/a/{n}")
    checks["new"] = "added >= 3"
    assert "broken_checks" not in await tables.apply(wanted_tables, dry_run=True)
    await tables.apply(wanted_tables)
    assert (await tables.list("a?id=eq.2"))[0]["small"] == 10_000
    assert (await tables.ask("POST", "/a", {"id": 7, "n": 20})).status == 400


async def test_checks_and_generated_columns_are_shown_changed_and_dropped(tables: Tables) -> None:
    await tables.apply({"orders": ORDERS, "lines": {"columns": {**ID, "order": {"type": "integer", "references": {
        "table": "orders", "column": "id", "onDelete": "CASCADE"}}}}})  # fmt: skip
    await tables.insert("orders", {"id": 1, "name": "a", "price": 2, "count": 3})
    await tables.insert("lines", {"id": 1, "order": 1})
    shown_tables = (await tables.ask("GET", "/schema")).json["schema"]["tables"]
    assert shown_tables["orders"]["checks"] == ORDERS["checks"]
    assert shown_tables["orders"]["columns"]["total"]["generated"] == "price * count"
    assert (await tables.ask("GET", "/schema/orders")).json["checks"] == ORDERS["checks"]
    assert (await tables.apply(shown_tables))["applied"] == 0
    orders = {**shown_tables["orders"], "checks": {"few": "count < 4"}}
    orders["columns"] = {**orders["columns"], "total": {"type": "numeric", "generated": "price * count + 1"}}
    orders["columns"]["label"] = {"type": "text"}
    orders["columns"]["count"] = {"type": "bigint"}
    orders["columns"]["twice"] = {"type": "bigint", "generated": "count + count"}
    orders["_dropColumns"] = ["size", "more"]
    del orders["columns"]["size"], orders["columns"]["more"]
    await tables.apply({**shown_tables, "orders": orders})
    [row] = await tables.list("orders")
    assert row == {
        "id": 1, "name": "a", "price": "2.00", "count": "3", "total": "7.00", "twice": "6", "label": "a x3",
        "is_large": False,
    }  # fmt: skip
    assert await tables.list("lines") == [{"id": 1, "order": 1}]
    assert (await tables.ask("PATCH", "/orders/1", {"price": -1, "label": "now mine"})).json["label"] == "now mine"
    assert (await _refuse(tables, "PATCH", "/orders/1", {"count": 4}))["details"]["check"] == "few"
    del orders["checks"], orders["_dropColumns"]
    await tables.apply({**shown_tables, "orders": orders})
    assert (await tables.ask("PATCH", "/orders/1", {"count": 4})).json["total"] == "-3.00"
    assert (await tables.ask("DELETE", "/orders/1")).status == 200
    assert await tables.list("lines") == []


async def test_a_column_that_holds_values_does_not_become_a_generated_one(tables: Tables) -> None:
    await tables.apply({"a": {"columns": {**ID, "n": "integer"}}})
    wanted_tables = {"a": {"columns": {**ID, "n": {"type": "integer", "generated": "id + 1"}}}}
    error = await _refuse(tables, "POST", "/schema/apply", {"schema": {"tables": wanted_tables}})
    assert error["code"] == "VALIDATION_INVALID_SCHEMA"
    assert "another name" in error["remediation"]


async def test_a_write_with_generated_columns_is_undone_and_its_rows_come_back_from_a_file(tables: Tables) -> None:
    await tables.apply({"orders": ORDERS})
    await tables.insert("orders", {"id": 1, "name": "a", "price": 2, "count": 3})
    before = await tables.list("orders")
    answer = await tables.ask("DELETE", "/orders/1")
    undone_answer = await tables.ask("POST", "/data-changes/undo", {"action_id": answer.headers["x-action-id"]})
    assert undone_answer.status == 200, undone_answer.content
    assert await tables.list("orders") == before
    exported_answer = await tables.ask("GET", "/data-export/orders")
    await tables.ask("DELETE", "/orders/1")
    sent_answer = await tables.world.ask(
        "POST", f"{tables.base}/data-import/orders", tables.world.owner, content=exported_answer.content
    )
    assert (sent_answer.status, sent_answer.json["written"]) == (200, 1), sent_answer.content
    assert await tables.list("orders") == before
    changed_answer = await tables.ask("PATCH", "/orders/1", {"count": 4})
    await tables.ask("POST", "/data-changes/undo", {"action_id": changed_answer.headers["x-action-id"]})
    assert await tables.list("orders") == before


async def test_an_app_moves_to_another_store_with_its_checks_generated_columns_and_views(
    tables: Tables, tmp_path: Path
) -> None:
    views = {"dear": "select id, total from orders where price * count > 5"}
    schema = {"tables": {"orders": ORDERS}, "views": views}
    assert (await tables.ask("POST", "/schema/apply", {"schema": schema})).status == 200
    await tables.insert("orders", {"id": 1, "name": "a", "price": 2, "count": 3}, {"id": 2, "price": 1, "count": 1})
    services, app_id = tables.world.application.services, tables.app.id
    source, dest = services.regions[services.options.default_region].data, FileStore(tmp_path)
    try:
        for _ in range(2):
            await copy_tables(source, dest, app_id)
        assert await survey_tables(dest, [app_id]) == await survey_tables(source, [app_id])
        with pytest.raises(IntegrityError, match="few"):
            await dest.write(app_id, lambda rows: rows.rows("UPDATE orders SET name = 'x', count = 11 WHERE id = 1"))
        await dest.write(app_id, lambda rows: rows.rows("UPDATE orders SET count = 4 WHERE id = 1"))
        [(total,)] = await dest.read(app_id, lambda rows: rows.rows("SELECT total FROM orders WHERE id = 1"))
        assert total == "8.00"
    finally:
        await dest.close()


EXPRESSIONS: dict[str, tuple[str, str]] = {
    # An expression, and what a database may not be asked instead of it.
    "price / 2 > 1": ("VALIDATION_INVALID_SCHEMA", "price / 2"),
    "now() > now()": ("VALIDATION_INVALID_SCHEMA", "not the same for all writers"),
    "at > now() - interval '1 day'": ("VALIDATION_INVALID_SCHEMA", "not the same for all writers"),
    "name = auth.email()": ("VALIDATION_INVALID_SCHEMA", "not the same for all writers"),
    "auth.role() = 'anon'": ("VALIDATION_INVALID_SCHEMA", "not the same for all writers"),
    "name = current_user_id()": ("VALIDATION_INVALID_SCHEMA", "not the same for all writers"),
    "exists (select 1 from a)": ("VALIDATION_INVALID_SCHEMA", "other rows"),
    "price::text = '1'": ("VALIDATION_INVALID_SCHEMA", "cast"),
    "at::text = '1'": ("VALIDATION_INVALID_SCHEMA", "cast"),
    "pg_sleep(9) is null": ("VALIDATION_INVALID_SCHEMA", "PG_SLEEP"),
    "(select count(*) from a) > 0": ("VALIDATION_INVALID_SCHEMA", "other rows"),
    "id > 0; drop table a": ("VALIDATION_INVALID_SCHEMA", "not one expression"),
    "other > 0": ("VALIDATION_INVALID_SCHEMA", "`other`"),
    "price * price > 0": ("VALIDATION_INVALID_SCHEMA", "real or double precision"),
    "id * id * id * id * id * id > 0": ("VALIDATION_INVALID_SCHEMA", "at most 4"),
    "id": ("VALIDATION_INVALID_SCHEMA", "neither true nor false"),
    "id = 'x'": ("VALIDATION_INVALID_SCHEMA", "valid numeric"),
    "(" * 60 + "id" + ")" * 60 + " > 0": ("VALIDATION_INVALID_SCHEMA", "expression"),
    "(" * 1900 + "id" + ")" * 1900 + " > 0": ("VALIDATION_INVALID_SCHEMA", "one expression"),
    "id > 0 and " * 500 + "id > 0": ("VALIDATION_INVALID_SCHEMA", "4000 characters"),
    " ": ("VALIDATION_INVALID_SCHEMA", "expression"),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
async def test_an_expression_that_is_not_safe_is_refused_in_a_check_and_in_a_generated_column(
    tables: Tables, text: str
) -> None:
    columns = {**ID, "price": "double precision", "name": "text", "at": "timestamptz"}
    code, part = EXPRESSIONS[text]
    error = await _refuse(
        tables, "POST", "/schema/apply", {"schema": {"tables": {"a": {"columns": columns, "checks": {"c": text}}}}}
    )
    assert (error["code"], part in error["message"]) == (code, True), error["message"]
    columns_with_generated = {**columns, "g": {"type": "boolean", "generated": text}}
    error = await _refuse(
        tables, "POST", "/schema/apply", {"schema": {"tables": {"a": {"columns": columns_with_generated}}}}
    )
    assert error["code"] == code


async def test_values_in_expressions_are_values_however_they_look(tables: Tables) -> None:
    texts = [text for text in CORPUS if len(text) < 100]
    for start in range(0, len(texts), 20):
        part = texts[start : start + 20]
        literals = ["'" + text.replace("'", "''") + "'" for text in part]
        columns = {**ID, "n": "integer", "t": "text"} | {
            f"g{number}": {"type": "text", "generated": f"coalesce(t, {literal})"}
            for number, literal in enumerate(literals)
        }
        checks = {f"c{number}": f"n <> {number} or t = {literal}" for number, literal in enumerate(literals)}
        dropped_tables = [f"a{start - 20}"] if start else []
        await tables.apply({f"a{start}": {"columns": columns, "checks": checks}}, drop=dropped_tables)
        [row] = await tables.insert(f"a{start}", {"id": 100})
        assert [row[f"g{number}"] for number in range(len(part))] == part
        for number, text in enumerate(part):
            assert (await tables.ask("POST", f"/a{start}", {"id": number, "n": number, "t": "other"})).status == 400
            await tables.insert(f"a{start}", {"id": number, "n": number, "t": text})


@pytest.mark.parametrize("name", [*CORPUS[:12], "Upper", "_check", "a" * 57])
async def test_names_of_checks_and_generated_columns_are_names(tables: Tables, name: str) -> None:
    wanted_tables = {"a": {"columns": ID, "checks": {name: "id > 0"}}}
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": wanted_tables}})
    assert answer.status == (200 if name == "_check" else 400), answer.content
    wanted_tables = {"b": {"columns": {**ID, name: {"type": "integer", "generated": "id"}}}}
    answer = await tables.ask("POST", "/schema/apply", {"schema": {"tables": wanted_tables, "_drop": ["a"]}})
    assert answer.status == (200 if name == "_check" else 400), answer.content
