"""A form with a mistake: its page comes back with what was typed and with what to correct."""

import json
from html import unescape

import httpx
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.conftest import ADDRESS
from tests.http.console.test_console import HOSTILE, find_csrf
from tests.http.console.test_runs import Runner


async def send_from(visitor: Runner, address: str, path: str, **fields: str) -> httpx.Response:
    """Sends a form as a browser does, which says from which page."""
    page = await visitor.open(address)
    headers = {**visitor.browser, "referer": ADDRESS + address}
    return await visitor.baobab.client.post(path, data={"csrf": find_csrf(page), **fields}, headers=headers)


def find(tree: LexborHTMLParser | LexborNode, selector: str) -> LexborNode:
    node = tree.css_first(selector)
    assert node is not None, selector
    return node


def find_form(answer: httpx.Response, path: str) -> LexborNode:
    return find(LexborHTMLParser(answer.text), f'form[action="{path}"]')


def read_problem(form: LexborNode, field: str) -> str:
    """What stands beside a field, to which the field refers."""
    control = find(form, f'[name="{field}"]')
    assert control.attributes["aria-invalid"] == "true"
    described_by = str(control.attributes["aria-describedby"]).split()[-1]
    return find(form, f"[id='{described_by}']").text()


async def test_a_value_that_is_not_json_comes_back_with_the_mistake_beside_it(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/kv/entry"
    text = f'\n{{"note": "{HOSTILE}"'
    answer = await send_from(visitor, f"{path}?key=note", f"{path}/store", key="note", expected="null", value=text)
    assert answer.status_code == 400
    form = find_form(answer, f"{path}/store")
    # The browser drops the first line break of a field of several lines, so the page has one more.
    assert 'name="value" rows="4" spellcheck="false" required="" aria-invalid="true"' in unescape(answer.text)
    assert HOSTILE not in answer.text
    assert find(form, "textarea").text() == text
    assert read_problem(form, "value").startswith("The value is not JSON: look at line 2")
    assert "VALIDATION" not in answer.text


async def test_a_row_comes_back_twice_and_is_saved_then(visitor: Runner) -> None:
    columns = {"id": {"type": "integer", "primaryKey": True}, "title": {"type": "text"}}
    schema = {"schema": {"tables": {"notes": {"columns": columns}}}}
    client, owner = visitor.baobab.client, visitor.baobab.owner
    await client.post(f"/v1/{visitor.app_id}/schema/apply", json=schema, headers=owner)
    await client.post(f"/v1/{visitor.app_id}/notes", json={"id": 1, "title": "a"}, headers=owner)
    base = f"/console/apps/{visitor.app_id}/tables/notes/row"
    before = {"id": 1, "title": "a"}
    first_fields = {"id": "1", "before": json.dumps(before), "row": '{"id": 1, "title": "long work"'}
    answer = await send_from(visitor, f"{base}?id=1", f"{base}/change", **first_fields)
    for _ in range(2):
        form = find_form(answer, f"{base}/change")
        assert find(form, "textarea").text() == first_fields["row"]
        assert find(form, '[name="before"]').attributes["value"] == first_fields["before"]
        fields = {str(node.attributes["name"]): node.attributes["value"] or "" for node in form.css("input")}
        # The address of the answer is the form's own, and leads to no page.
        headers = {**visitor.browser, "referer": f"{ADDRESS}{base}/change"}
        answer = await client.post(f"{base}/change", data={**fields, "row": first_fields["row"]}, headers=headers)
        assert answer.status_code == 400
    answer = await client.post(f"{base}/change", data={**fields, "row": first_fields["row"] + "}"}, headers=headers)
    assert answer.status_code == 303
    row = await client.get(f"/v1/{visitor.app_id}/notes/1", headers=owner)
    assert row.json()["title"] == "long work"


async def test_what_the_tool_refuses_stands_beside_its_field(visitor: Runner) -> None:
    answer = await send_from(visitor, "/console/apps", "/console/apps/create", name="!?")
    form = find_form(answer, "/console/apps/create")
    assert find(form, '[name="name"]').attributes["value"] == "!?"
    assert read_problem(form, "name") == "The name needs a letter from a to z or a digit."


async def test_the_form_of_a_new_key_keeps_its_choices_and_is_open(visitor: Runner) -> None:
    page = await visitor.open("/console/keys")
    organisation = str(find(find_form(page, "/console/keys/create"), '[name="of"]').attributes["value"])
    fields = {"of": organisation, "name": "reader", "approval": "write", "read_only": "yes", "last_day": "soon"}
    answer = await send_from(visitor, "/console/keys", "/console/keys/create", **fields)
    form = find_form(answer, "/console/keys/create")
    assert find(form, 'option[value="write"]').attributes.get("selected") == ""
    assert find(form, '[name="read_only"]').attributes.get("checked") == ""
    assert read_problem(form, "last_day") == "Type a date, such as 2027-01-31."
    assert form.parent is not None
    assert form.parent.attributes.get("open") == ""


async def test_a_filter_that_cannot_be_read_comes_back_with_its_page(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/runs"
    answer = await visitor.baobab.client.get(f"{path}?status=tired&agent=", headers=visitor.browser)
    assert answer.status_code == 400
    assert read_problem(find_form(answer, path), "status")


async def test_without_its_page_what_was_typed_is_on_the_page_of_the_error(visitor: Runner) -> None:
    page = await visitor.open("/console")
    path = f"/console/apps/{visitor.app_id}/tables/none/row/add"
    answer = await visitor.send(path, page, row='{"title": "typed"}', password="not this")
    assert answer.status_code == 404
    assert "{&#34;title&#34;: &#34;typed&#34;}" in answer.text
    assert "not this" not in answer.text
