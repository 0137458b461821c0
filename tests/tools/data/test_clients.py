"""What clients of PostgREST rely on: CSV, and the words of an error where they look for them."""

from typing import Any

import pytest

from tests.tools.data.conftest import ADA, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_rows_come_as_csv_where_the_client_accepts_that(tables: Tables) -> None:
    columns = {
        "id": {"type": "serial", "primaryKey": True},
        "text": {"type": "text"},
        "on": {"type": "boolean"},
        "json": {"type": "jsonb"},
        "big": {"type": "bigint"},
    }
    await tables.apply({"things": {"columns": columns}})
    await tables.insert("things", {"text": 'a "quoted", text\nof two lines', "on": True, "json": {"a": [1, None]}})
    await tables.insert("things", {"text": "", "big": "9223372036854775807"}, {"text": " =1+1"})
    answer = await tables.ask("GET", "/things?order=id", accept="text/csv")
    assert dict(answer.pairs)["content-type"] == "text/csv; charset=utf-8"
    assert dict(answer.pairs)["content-range"] == "0-2/*"
    assert answer.content.decode() == (
        "id,text,on,json,big\r\n"
        '1,"a ""quoted"", text\nof two lines",true,"{""a"": [1, null]}",\r\n'
        '2,"",,,9223372036854775807\r\n'
        '3," =1+1",,,\r\n'
    )
    nothing = await tables.ask("GET", "/things?select=text,n:id&id=eq.9", accept="text/csv")
    assert nothing.content == b"text,n\r\n"


async def test_an_error_has_its_words_where_clients_of_postgrest_look_for_them(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    answer = (await tables.ask("GET", "/posts?nothing=eq.1")).json
    error = answer["error"]
    assert answer["code"] == error["code"] == "VALIDATION_INVALID_SCHEMA"
    assert answer["message"] == error["message"]
    assert answer["hint"] == error["remediation"]
    assert "invalidFilters" in answer["details"]
    plain = (await tables.ask("POST", "/posts", {"title": None})).json
    assert (plain["error"]["code"], plain["code"]) == ("VALIDATION_NOT_NULL_VIOLATION", "23502")


async def test_an_error_has_the_code_of_postgres_where_clients_of_postgrest_look_for_it(tables: Tables) -> None:
    parts: dict[str, Any] = {
        "columns": {"id": {"type": "integer", "primaryKey": True}, "post": {"type": "uuid", "references": "posts.id"}}
    }
    parts["checks"] = {"small": "id < 100"}
    await tables.apply({"posts": POSTS, "parts": parts})
    await tables.insert("parts", {"id": 1})
    for body, code, name in (
        ({"id": 1}, "23505", "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"),
        ({"id": 2, "post": ADA}, "23503", "VALIDATION_FOREIGN_KEY_VIOLATION"),
        ({"id": 100}, "23514", "VALIDATION_CHECK_VIOLATION"),
    ):
        answer = (await tables.ask("POST", "/parts", body)).json
        assert (answer["code"], answer["error"]["code"]) == (code, name)
    refusal = (await tables.ask("POST", "/parts", {"id": 3}, await tables.user(ADA))).json
    assert (refusal["code"], refusal["error"]["code"]) == ("42501", "AUTH_RLS_POLICY_VIOLATION")
