"""Tables as files: what is exported comes back when it is imported, and an import that stops can go on."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from baobab.tools.core.limits import plans
from tests.http.installation import HOST
from tests.servers import TIMEOUT_SECONDS
from tests.tools.data.conftest import ADA, BEN, POSTS, Tables
from tests.tools.data.test_rows import EVERY_TYPE

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITEMS: dict[str, Any] = {
    "columns": {
        "id": {"type": "integer", "primaryKey": True},
        "note": {"type": "text"},
        "code": {"type": "text", "unique": True},
    }
}


async def send(tables: Tables, path: str, content: str | bytes, by: Any = None, **headers: str) -> Any:
    caller = tables.world.owner if by is None else by
    more_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    content = content.encode() if isinstance(content, str) else content
    return await tables.world.ask(
        "POST", f"{tables.base}/data-import/{path}", {**caller, **more_headers}, content=content
    )


async def export(tables: Tables, path: str, by: Any = None, **headers: str) -> str:
    answer = await tables.ask("GET", f"/data-export/{path}", None, by, **headers)
    assert answer.status == 200, answer.content
    text: str = answer.content.decode()
    return text


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
async def test_rows_of_every_type_come_back_as_they_were_exported(tables: Tables, kind: str) -> None:
    columns = {"id": {"type": "serial", "primaryKey": True}} | {
        name: {"type": each} for name, (each, _, _) in EVERY_TYPE.items()
    }
    await tables.apply({"things": {"columns": columns}, "copies": {"columns": columns}})
    full = {name: value for name, (_, value, _) in EVERY_TYPE.items()}
    empty: dict[str, Any] = {"a_text": "", "texts": [], "a_json": {}, "a_varchar": " \r\n"}
    await tables.insert("things", full, empty, {"a_text": None}, {"a_text": "null", "texts": ["null", None, ""]})
    text = await export(tables, f"things?format={kind}")
    answer = await send(tables, f"copies?format={kind}", text)
    assert (answer.status, answer.json["written"], answer.json["failed"]) == (200, 4, 0), answer.content
    assert await tables.list("copies?order=id") == await tables.list("things?order=id")
    # The numbers of new rows follow on those that came with the file.
    assert (await tables.insert("copies", {}))[0]["id"] == 5


async def test_a_csv_of_one_column_keeps_its_nulls(tables: Tables) -> None:
    await tables.apply({"words": {"columns": {"word": {"type": "text"}}}, "copies": {"columns": {"word": "text"}}})
    await tables.insert("words", *({"word": word} for word in (None, "", "a", None)))
    text = await export(tables, "words")
    assert sorted(text.splitlines()) == ["", "", '""', "a", "word"]
    assert (await send(tables, "copies", text)).json["written"] == 4
    assert await tables.list("copies?order=word") == await tables.list("words?order=word")


@pytest.mark.parametrize(("key", "columns"), [("id", "a,id"), ("a,id", "note"), ("price", "price")])
async def test_an_export_has_every_row_once_in_the_order_of_the_key(tables: Tables, key: str, columns: str) -> None:
    keys = key.split(",")
    kinds = {"a": "text", "id": "integer", "price": "numeric", "note": "text"}
    await tables.apply({"rows": {"columns": {n: {"type": k, "primaryKey": n in keys} for n, k in kinds.items()}}})
    given_rows = [{"id": n, "a": "xyz"[n % 3], "price": n * 1.5, "note": f"note {n}"} for n in range(2500)]
    for start in range(0, 2500, 1000):
        await tables.insert("rows", *given_rows[start : start + 1000])
    lines = (await export(tables, f"rows?format=jsonl&select={columns}&id=gte.10")).splitlines()
    ordered_rows = sorted(given_rows[10:], key=lambda row: [row[name] for name in keys])
    names = columns.split(",")
    shown_rows = [{**row, "price": str(row["price"])} for row in ordered_rows]
    assert [json.loads(line) for line in lines] == [{name: row[name] for name in names} for row in shown_rows]


async def test_an_export_holds_only_rows_that_the_caller_may_see(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.insert("posts", {"title": "hers", "user_id": ADA}, {"title": "his", "user_id": BEN})
    refusal = await tables.ask("GET", "/data-export/posts", None, {})
    assert (refusal.status, refusal.json["error"]["code"]) == (401, "AUTH_RLS_REQUIRES_USER_JWT")
    await tables.policy("posts", "own", role="user", using_expression="user_id = current_user_id()")
    assert await export(tables, "posts?select=title", await tables.user(ADA)) == "title\r\nhers\r\n"
    assert await export(tables, "posts?select=title", x_platform_as_user=BEN) == "title\r\nhis\r\n"


async def test_an_export_escapes_formulas_if_asked_to(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    await tables.insert(
        "items", {"id": -1, "note": "=cmd|' /C calc'!A0"}, {"id": 2, "note": "+1"}, {"id": 3, "code": "@x"}
    )
    plain = "id,note,code\r\n-1,=cmd|' /C calc'!A0,\r\n2,+1,\r\n3,,@x\r\n"
    assert await export(tables, "items") == plain
    escaped_csv = plain.replace("=cmd", "'=cmd").replace("+1", "'+1").replace("@x", "'@x")
    assert await export(tables, "items?escape_formulas=true") == escaped_csv


@pytest.mark.parametrize("query", ["select=id,items(id)", "select=count()", "select=a:id,a:note"])
async def test_an_export_of_more_than_one_table_is_refused(tables: Tables, query: str) -> None:
    await tables.apply({"items": ITEMS})
    assert (await tables.ask("GET", f"/data-export/items?{query}")).status == 400


async def test_rows_larger_than_a_page_are_exported(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    for number in range(12):
        await tables.insert("items", {"id": number, "note": "x" * 900_000})
    lines = (await export(tables, "items?format=jsonl")).splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(range(12))


LINES = "".join(f"{number},note {number},{number}\n" for number in range(1, 1201))
BAD = {
    "type": ("700,note 700,700\n", "x,note,700\n", "VALIDATION_INVALID_INPUT"),
    "unique": ("700,note 700,700\n", "700,note,5\n", "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"),
    "key": ("700,note 700,700\n", ",note,700\n", "VALIDATION_NOT_NULL_VIOLATION"),
    "fields": ("700,note 700,700\n", "700,note\n", "VALIDATION_INVALID_INPUT"),
    "quote": ("700,note 700,700\n", '700,"note" x,700\n', "VALIDATION_INVALID_INPUT"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_an_import_stops_before_a_line_that_fails_and_goes_on_when_it_is_corrected(
    tables: Tables, kind: str
) -> None:
    good, bad, code = BAD[kind]
    await tables.apply({"items": ITEMS})
    broken_csv = "id,note,code\n" + LINES.replace(good, bad)
    for _ in range(2):
        refusal = await send(tables, "items", broken_csv, idempotency_key="file")
        error = refusal.json["error"]
        assert (refusal.status, error["code"]) == (400, "DATA_IMPORT_STOPPED")
        report = error["details"]["import"]
        assert (report["written"], report["failed"], report["last_line"]) == (699, 1, 700)
        assert (report["errors"][0]["line"], report["errors"][0]["code"]) == (701, code)
        assert len(await tables.list("items?limit=1000")) == 699
    for _ in range(2):
        answer = await send(tables, "items", "id,note,code\n" + LINES, idempotency_key="file")
        assert (answer.status, answer.json["written"], answer.json["failed"]) == (200, 1200, 0), answer.content
        counted_answer = await tables.ask("GET", "/items?limit=1", None, prefer="count=exact")
        assert counted_answer.headers["x-total-count"] == "1200"
    other = await send(tables, "items", "id,note,code\n" + LINES.replace("note 3,", "other,"), idempotency_key="file")
    assert (other.status, other.json["error"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    shorter = await send(tables, "items", "id,note,code\n1,note 1,1\n", idempotency_key="file")
    assert (shorter.status, shorter.json["error"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_an_import_leaves_lines_out_that_fail_if_asked_to(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    lines = [
        {"id": 1, "code": "a"},
        {"id": 2, "code": "a"},
        {"id": "x"},
        {"other": 1},
        {"id": 1},
        {"id": 3, "code": "b"},
    ]
    broken_lines = ["[1]", "{", r'{"id": 8, "code": "\ud800"}', '{"id": 9, "code": [1e999]}']
    text = "\n".join([*map(json.dumps, lines), *broken_lines, ""])
    answer = await send(tables, "items?format=jsonl&skip_errors=true", text)
    assert answer.status == 200, answer.content
    assert (answer.json["written"], answer.json["failed"]) == (2, 8)
    assert [error["line"] for error in answer.json["errors"]] == [2, 3, 4, 5, 7, 8, 9, 10]
    assert [row["id"] for row in await tables.list("items?order=id")] == [1, 3]


async def test_an_import_updates_rows_that_are_there_also_those_of_its_own(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    await tables.insert("items", {"id": 1, "note": "old"})
    text = "id,note\n1,new\n2,first\n2,second\n"
    merge_answer = await send(tables, "items?on_conflict=id", text)
    assert merge_answer.json["written"] == 3, merge_answer.content
    assert [row["note"] for row in await tables.list("items?order=id")] == ["new", "second"]
    ignore_answer = await send(tables, "items", "id,note\n1,x\n3,third\n", prefer="resolution=ignore-duplicates")
    assert ignore_answer.json["written"] == 1, ignore_answer.content
    assert [row["note"] for row in await tables.list("items?order=id")] == ["new", "second", "third"]


async def test_a_dry_run_writes_nothing_and_tells_which_lines_would_fail(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    text = "id,note\n1,a\nx,b\n1,c\n"
    answer = await send(tables, "items?dry_run=true&skip_errors=true", text, idempotency_key="dry")
    assert answer.json["dry_run"] is True, answer.content
    assert [error["line"] for error in answer.json["errors"]] == [3]
    assert await tables.list("items") == []
    assert (await send(tables, "items?skip_errors=true", text, idempotency_key="dry")).json["written"] == 1


async def test_an_import_is_undone_as_a_whole(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    result = (await send(tables, "items", "id,note,code\n" + LINES)).json
    answer = await tables.ask("POST", "/data-changes/undo", {"run_id": result["import_id"]})
    assert (answer.status, answer.json["undone"]) == (200, 1200), answer.content
    assert await tables.list("items") == []


async def test_two_imports_with_one_key_at_once_write_each_line_once(tables: Tables) -> None:
    await tables.apply({"notes": {"columns": {"note": {"type": "text"}}}})
    text = "note\n" + "".join(f"note {number}\n" for number in range(1500))
    answers = await asyncio.gather(*(send(tables, "notes", text, idempotency_key="k") for _ in range(3)))
    assert {answer.status for answer in answers} <= {200, 409}
    for answer in answers:
        assert answer.status == 200 or answer.json["error"]["code"] == "DATA_IMPORT_OVERTAKEN"
    assert (await send(tables, "notes", text, idempotency_key="k")).json["written"] == 1500
    counted_answer = await tables.ask("GET", "/notes?limit=1", None, prefer="count=exact")
    assert counted_answer.headers["x-total-count"] == "1500"


async def test_imports_at_once_stay_within_the_plan(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plans.PLANS, "enterprise", replace(plans.PLANS["enterprise"], table_bytes=100_000))
    await tables.apply({"notes": {"columns": {"note": {"type": "text"}}}})
    text = "note\n" + f"{'x' * 60}\n" * 2000
    answers = await asyncio.gather(*(send(tables, "notes", text) for _ in range(3)))
    written_count = 0
    for answer in answers:
        error = answer.json["error"]
        assert (answer.status, error["code"]) == (402, "QUOTA_STORAGE_EXCEEDED")
        written_count += error["details"]["import"]["written"]
    counted_answer = await tables.ask("GET", "/notes?limit=1", None, prefer="count=exact")
    # Whole parts of 500 lines of 100 bytes each.
    assert counted_answer.headers["x-total-count"] == str(written_count) == "1000"


async def test_a_body_is_taken_apart_wherever_its_pieces_end(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    rows = [{"id": 1, "note": 'a "quoted" ü\r\nline', "code": "🌳"}, {"id": 2, "note": "", "code": None}]
    await tables.insert("items", *rows)
    content = ("\ufeff" + await export(tables, "items")).encode()
    for size in (1, 2, 3, 7):
        await tables.ask("DELETE", "/items?id=gt.0")
        pieces = [content[start : start + size] for start in range(0, len(content), size)]
        answer = await tables.world.ask(
            "POST", f"{tables.base}/data-import/items", tables.world.owner, content=content, pieces=pieces
        )
        assert answer.json["written"] == 2, answer.content
        assert await tables.list("items?order=id") == rows


async def use(tables: Tables, name: str, by: dict[str, str], arguments: dict[str, Any]) -> str:
    """Calls a tool over MCP, and returns the text that it answers."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {**by, "content-type": "application/json", "accept": "application/json, text/event-stream"}
    answer = await tables.world.ask("POST", "/mcp", headers, message)
    assert answer.status == 200, answer.content
    text: str = json.loads(answer.content.partition(b"data: ")[2])["result"]["content"][0]["text"]
    return text


async def test_a_small_file_is_imported_and_exported_over_mcp(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    arguments = {"app_id": tables.app.id, "table": "items"}
    owner = tables.world.owner
    result = await use(tables, "data_import", owner, {**arguments, "content": "id,note\n1,a\n2,b\n"})
    assert json.loads(result)["written"] == 2
    assert '{"id": 2, "note": "b", "code": null}' in await use(
        tables, "data_export", owner, {**arguments, "format": "jsonl"}
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("id,nothing\n1,2\n", "VALIDATION_COLUMN_NOT_FOUND"),
        ('id,"note"" ; drop table items --"\n1,2\n', "VALIDATION_COLUMN_NOT_FOUND"),
        ("id,id\n1,2\n", "VALIDATION_INVALID_INPUT"),
        ('id,"note\n1,2\n', "VALIDATION_INVALID_INPUT"),
        (b"id,note\n1,\xff\n", "VALIDATION_INVALID_INPUT"),
        ('id,note\n1,"' + "x" * 2_000_000, "VALIDATION_INVALID_INPUT"),
        ("id,note\n1,a\x00b\n", "DATA_IMPORT_STOPPED"),
        ("id,note\n1e400,a\n", "DATA_IMPORT_STOPPED"),
        ("id,note\n99999999999999999999,a\n", "DATA_IMPORT_STOPPED"),
    ],
)
async def test_a_file_that_cannot_be_read_is_refused_and_nothing_of_it_written(
    tables: Tables, content: str | bytes, code: str
) -> None:
    await tables.apply({"items": ITEMS})
    answer = await send(tables, "items", content)
    assert (answer.status, answer.json["error"]["code"]) == (400, code), answer.content
    assert await tables.list("items") == []


async def test_a_stream_that_a_person_must_agree_to_is_refused_and_a_text_waits_for_them(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    organisation = (await tables.ask("GET", "/config")).json["organization_id"]
    asking = await tables.world.create_key(tables.world.owner, organization_id=organisation, approval="write")
    refusal = await send(tables, "items", "id\n1\n", asking)
    assert (refusal.status, refusal.json["error"]["code"]) == (400, "DATA_IMPORT_NOT_TEXT")
    assert "MCP" in refusal.json["error"]["remediation"]
    arguments = {"app_id": tables.app.id, "table": "items", "content": "id\n1\n"}
    waiting = await use(tables, "data_import", asking, arguments)
    assert "approval" in waiting
    assert await tables.list("items") == []


@dataclass
class StalledClient:
    """A client that asks for an export and reads no piece of it, until it hangs up."""

    tables: Tables
    has_gone: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        headers = [(name.encode(), value.encode()) for name, value in {**self.tables.world.owner, "host": HOST}.items()]
        path = f"{self.tables.base}/data-export/items"
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
        }
        scope |= {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers}
        scope |= {"client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8000)}
        await self.tables.world.server(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self.has_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
        else:
            self.has_begun.set()
            await asyncio.Future()


async def test_exports_that_nobody_reads_hold_nothing_but_their_few_places(tables: Tables) -> None:
    await tables.apply({"items": ITEMS})
    for start in (0, 1000):
        await tables.insert("items", *({"id": start + number} for number in range(1000)))
    clients = [StalledClient(tables) for _ in range(4)]
    async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run())
        for client in clients:
            await client.has_begun.wait()
        refusal = await tables.ask("GET", "/data-export/items")
        assert (refusal.status, refusal.json["error"]["code"]) == (429, "DATA_EXPORT_LIMIT")
        # Neither rows nor tables are locked, and no connection is taken.
        await tables.insert("items", {"id": 5000})
        await tables.apply({"items": {**ITEMS, "checks": {"some": "id >= 0"}}})
        assert len(await tables.list("items?limit=10")) == 10
        for client in clients:
            client.has_gone.set()
    assert len((await export(tables, "items")).splitlines()) == 2002


@pytest.mark.parametrize(("delimiter", "in_address"), [(";", ";"), ("|", "%7C"), ("\t", "%09")])
async def test_a_csv_may_have_another_delimiter_and_the_error_without_it_names_it(
    tables: Tables, delimiter: str, in_address: str
) -> None:
    await tables.apply({"items": ITEMS})
    content = 'id;note;code\n1;"a;b, ""c""";\n2;;x\n'.replace(";", delimiter)
    refusal = await send(tables, "items", content)
    assert refusal.status == 400
    name = "a tab" if delimiter == "\t" else f"`{delimiter}`"
    assert name in refusal.json["error"]["message"]
    assert "delimiter" in refusal.json["error"]["remediation"]
    assert await tables.list("items") == []
    answer = await send(tables, f"items?delimiter={in_address}", content)
    assert (answer.status, answer.json["written"]) == (200, 2)
    note = 'a;b, "c"'.replace(";", delimiter)
    assert await tables.list("items?order=id") == [
        {"id": 1, "note": note, "code": None},
        {"id": 2, "note": None, "code": "x"},
    ]
