"""A page of another origin reads and writes rows with postgrest-js: the browser asks before it sends its headers."""

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.console.conftest import KEY, BrowserServer

_LIBRARY = Path(__file__).parents[1] / "node_modules/@supabase/postgrest-js/dist/index.mjs"
_SCRIPT = """
async ([address, key]) => {
  const { PostgrestClient } = await import("/postgrest.mjs");
  const headers = { Authorization: `Bearer ${key}`, "X-Client-Info": "a-page/1" };
  const client = new PostgrestClient(address, { headers, schema: "public" });
  const answers = {};
  const keep = (name, { data, error, count, status }) => {
    answers[name] = error ? { error: error.message, status } : { data, count };
  };
  keep("insert", await client.from("todos").insert({ title: "a" }));
  keep("insertAndSelect", await client.from("todos").insert({ title: "b" }).select().single());
  keep("upsert", await client.from("todos").upsert({ id: 2, title: "c" }).select());
  keep("count", await client.from("todos").select("title", { count: "exact" }).order("id").range(0, 0));
  keep("update", await client.from("todos").update({ title: "d" }).eq("id", 1).select("title"));
  keep("delete", await client.from("todos").delete({ count: "exact" }).eq("id", 1));
  keep("as", await client.from("todos").select().setHeader("X-Platform-As-Role", "anon"));
  const answer = await fetch(`${address}/todos?select=titel`, { headers });
  answers.warnings = answer.headers.get("x-baobab-warnings");
  return answers;
}
"""


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    """Where a site with the library is served, by a server of its own."""
    shutil.copy(_LIBRARY, tmp_path / "postgrest.mjs")
    (tmp_path / "index.html").write_text("<!doctype html><title>A shop</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{site.server_address[1]}"
        site.shutdown()
        thread.join()


async def test_a_page_of_an_allowed_origin_reads_and_writes_with_postgrest_js(
    browser_server: BrowserServer, origin: str
) -> None:
    app = await browser_server.create_app("shop")
    table = {"columns": {"id": {"type": "serial", "primaryKey": True}, "title": "text"}}
    await browser_server.ask("POST", f"/v1/{app}/schema/apply", {"schema": {"tables": {"todos": table}}})
    policy = {"table_name": "todos", "policy_name": "open", "command": "SELECT", "using_expression": "true"}
    await browser_server.ask("POST", f"/v1/{app}/rls/policies", policy)
    await browser_server.ask("PATCH", f"/v1/{app}/config/cors", {"allowed_origins": [origin]})
    page = await browser_server.browser.new_page()
    try:
        await page.goto(f"{origin}/")
        answers = await page.evaluate(_SCRIPT, [f"{browser_server.server.address}/v1/{app}/data", KEY])
    finally:
        await page.close()
    assert [name for name, answer in answers.items() if "error" in answer] == []
    assert answers["insertAndSelect"]["data"] == {"id": 2, "title": "b"}
    assert answers["upsert"]["data"] == [{"id": 2, "title": "c"}]
    assert answers["count"] == {"data": [{"title": "a"}], "count": 2}
    assert answers["update"]["data"] == [{"title": "d"}]
    assert answers["delete"]["count"] == 1
    assert answers["as"]["data"] == [{"id": 2, "title": "c"}]
    assert "titel" in answers["warnings"]
