"""The console's pages of tables: drawing, rows, who sees what, and undo."""

import re
from typing import Any

import pytest

from tests.conftest import Baobab
from tests.http.console.test_console import HOSTILE, sign_in
from tests.http.console.test_runs import Runner

POSTS: dict[str, Any] = {
    "authors": {"columns": {"id": {"type": "integer", "primaryKey": True}, "name": {"type": "text"}}},
    "posts": {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "author_id": {"type": "integer", "references": "authors.id"},
            "title": {"type": "text"},
            "public": {"type": "boolean"},
        }
    },
}


@pytest.fixture
async def visitor(baobab: Baobab) -> Runner:
    visitor = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    await _ask(visitor, "schema/apply", {"schema": {"tables": POSTS}})
    return visitor


async def _ask(visitor: Runner, path: str, body: Any) -> Any:
    baobab = visitor.baobab
    answer = await baobab.client.post(f"/v1/{visitor.app_id}/{path}", json=body, headers=baobab.owner)
    assert answer.status_code < 300, answer.text
    return answer.json()


async def test_tables_are_listed_and_their_references_drawn(visitor: Runner) -> None:
    page = await visitor.open(f"/console/apps/{visitor.app_id}/tables")
    assert "posts.author_id refers to authors" in page.text
    assert 'aria-label="2 tables, 1 reference"' in page.text
    empty = Runner(visitor.baobab, await visitor.baobab.create_app(), visitor.browser)
    assert "No table yet" in (await empty.open(f"/console/apps/{empty.app_id}/tables")).text


async def test_rows_are_added_filtered_changed_deleted_and_brought_back(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/tables/authors"
    page = await visitor.open(path)
    for row in ('{"id": 1, "name": "Ada"}', '{"id": 2, "name": "Ben & Co <b>"}'):
        assert (await visitor.send(f"{path}/row/add", page, row=row)).status_code == 303
    assert (await visitor.send(f"{path}/row/add", page, row="[")).status_code == 400
    page_text = (await visitor.open(f"{path}?filter=name%3Dilike.*ben*%26id%3Dgt.1")).text
    assert "Ben &amp; Co &lt;b&gt;" in page_text
    assert "Ada" not in page_text
    row_page = await visitor.open(f"{path}/row?id=1")
    before = '{"id": 1, "name": "Ada"}'
    response = await visitor.send(
        f"{path}/row/change", row_page, id="1", before=before, row='{"id": 1, "name": "Lovelace"}'
    )
    assert response.status_code == 303
    assert (await visitor.send(f"{path}/row/delete", row_page, id="2")).status_code == 303
    history = await visitor.open(f"/console/apps/{visitor.app_id}/row-changes")
    actions = re.findall(r'name="action_id" value="(\d+)"', history.text)
    undo = f"/console/apps/{visitor.app_id}/row-changes/undo"
    for action in actions[:2]:
        assert (await visitor.send(undo, history, action_id=action, confirmed="1")).status_code == 303
    listed_page_text = (await visitor.open(path)).text
    assert "Ada" in listed_page_text
    assert "Ben &amp; Co" in listed_page_text


async def test_a_write_is_one_card_and_its_undo_names_the_rows_before_anything_is_undone(visitor: Runner) -> None:
    await _ask(visitor, "authors", [{"id": number, "name": f"author {number}"} for number in range(1, 251)])
    await _ask(visitor, "authors", [{"id": 300, "name": "alone"}])
    path = f"/console/apps/{visitor.app_id}/row-changes"
    history = await visitor.open(path)
    assert re.findall(r">Undo (\d+ rows?)</button>", history.text) == ["1 row", "250 rows"]
    (_, action) = re.findall(r'name="action_id" value="(\d+)"', history.text)
    page = await visitor.send(f"{path}/undo", history, action_id=action, rows="250")
    assert (page.status_code, "Undo 250 rows?" in page.text) == (200, True)
    assert "It would take 250 changes of rows back" in page.text
    rows_path = f"/v1/{visitor.app_id}/data/authors?select=id&limit=1000"
    assert len((await visitor.baobab.client.get(rows_path, headers=visitor.baobab.owner)).json()) == 251
    response = await visitor.send(f"{path}/undo", history, action_id=action, confirmed="1")
    assert response.headers["location"] == f"{path}?undone=250"
    assert "250 rows are as before." in (await visitor.open(f"{path}?undone=250")).text
    assert len((await visitor.baobab.client.get(rows_path, headers=visitor.baobab.owner)).json()) == 1


async def test_who_sees_what_is_shown_side_by_side(visitor: Runner) -> None:
    await _ask(visitor, "posts", [{"id": 1, "title": HOSTILE, "public": True}, {"id": 2, "title": "x"}])
    policy = {"table_name": "posts", "policy_name": "open", "role": "anon", "using_expression": "public"}
    await _ask(visitor, "rls/policies", policy)
    ada = "11111111-1111-4111-8111-111111111111"
    page = (await visitor.open(f"/console/apps/{visitor.app_id}/tables/posts/access?first={ada}")).text
    assert "2 rows in all. Visitors: 1." in page
    assert page.count("sees it") == 1
    assert HOSTILE not in page


async def test_a_table_is_exported_and_imported_after_it_was_checked(visitor: Runner) -> None:
    await _ask(visitor, "authors", [{"id": 1, "name": "=1+1"}, {"id": 2, "name": HOSTILE}])
    path = f"/console/apps/{visitor.app_id}/tables/authors"
    csv_response = await visitor.open(f"{path}/rows.csv?filter=id%3Dlt.2")
    assert csv_response.text == "id,name\r\n1,'=1+1\r\n"
    assert "attachment" in csv_response.headers["content-disposition"]
    assert (await visitor.open(f"{path}/rows.jsonl?filter=id%3Dlt.2")).text == '{"id": 1, "name": "=1+1"}\n'
    page = await visitor.open(f"{path}/import")
    content = "id,name\r\n3,Ada\r\nx,Ben\r\n"
    response = await visitor.send(f"{path}/import", page, content=content, dry_run="on", skip_errors="on")
    assert "1 rows would be written, and nothing was." in response.text
    assert "Line 3" in response.text
    assert "Ada" not in (await visitor.open(path)).text
    assert (await visitor.send(f"{path}/import", page, content=content)).status_code == 400
    assert "Ada" in (await visitor.open(path)).text


async def test_a_view_is_browsed_and_compared_and_offers_no_writes(visitor: Runner) -> None:
    views = {"titles": "select title, author_id from posts where public", "plain": "select id from authors"}
    await _ask(visitor, "schema/apply", {"schema": {"tables": POSTS, "views": views}})
    await _ask(visitor, "posts", [{"id": 1, "title": HOSTILE, "public": True}, {"id": 2, "title": "x"}])
    policy = {"table_name": "posts", "policy_name": "open", "role": "anon", "using_expression": "true"}
    await _ask(visitor, "rls/policies", policy)
    path = f"/console/apps/{visitor.app_id}/tables"
    page_text = (await visitor.open(path)).text
    assert "select title, author_id from posts where public" in page_text
    assert "The view titles of posts: anyone without signing in may SELECT any row." in page_text
    rows = (await visitor.open(f"{path}/titles?filter=author_id%3Dis.null")).text
    assert "A view, which is read only" in rows
    assert "Add a row" not in rows
    assert "/import" not in rows
    assert HOSTILE not in rows
    assert rows.count("<tr>") == 2
    page = (await visitor.open(f"{path}/titles/access")).text
    assert "1 rows in all. Visitors: 1." in page
    assert "A view has no policies of its own." in page
    assert "Row-level security is off" not in page
    assert (await visitor.open(f"{path}/titles/rows.csv")).text.startswith("title,author_id\r\n")


SALES: dict[str, Any] = {
    "tables": {
        "orders": {
            "columns": {
                "id": {"type": "integer", "primaryKey": True},
                "price": {"type": "integer"},
                "doubled": {"type": "integer", "generated": "price * 2"},
            },
            "checks": {"dear": "price > 0"},
        }
    },
    "views": {"sales": "select o.id, o.doubled from orders o"},
}


async def test_generated_columns_are_shown_and_not_offered_to_be_changed(visitor: Runner) -> None:
    await _ask(visitor, "schema/apply", {"schema": SALES | {"_drop": ["authors", "posts"]}})
    await _ask(visitor, "orders", {"id": 1, "price": 4})
    path = f"/console/apps/{visitor.app_id}/tables/orders"
    page_text = (await visitor.open(f"{path}/row?id=1")).text
    read_only, _, form = page_text.partition("row/change")
    assert "<dt>doubled</dt>" in read_only
    assert "price * 2" in read_only
    assert "doubled" not in form
    assert "price" in form
    rows = (await visitor.open(path)).text
    assert "doubled" in rows.partition("Add a row")[0]
    assert "doubled" not in rows.partition("Add a row")[2]
    assert "price &gt; 0" in rows
    row = '{"id": 1, "price": 5}'
    page = await visitor.open(f"{path}/row?id=1")
    await visitor.send(f"{path}/row/change", page, id="1", before='{"id": 1, "price": 4}', row=row)
    assert '<code class="theirs">10</code>' in (await visitor.open(f"{path}/row?id=1")).text
