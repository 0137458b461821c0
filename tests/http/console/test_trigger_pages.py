"""The pages of triggers: what starts by itself, what became of it; tried, paused and sent again there."""

import re

from tests.conftest import Baobab
from tests.http.console.test_console import sign_in
from tests.http.console.test_returned_forms import find_form, read_problem, send_from
from tests.http.console.test_runs import Runner
from tests.jobs import run_due_jobs
from tests.tools.agents.conftest import build_graph

_AGENT = build_graph({"done": {"type": "end"}})


async def open_page(baobab: Baobab) -> tuple[Runner, str]:
    """An app with an agent, and the address of its triggers' page."""
    app_id = await baobab.create_app()
    body = {"name": "helper", "graph_spec": _AGENT}
    answer = await baobab.client.post(f"/v1/{app_id}/agents", json=body, headers=baobab.owner)
    assert answer.status_code == 201, answer.text
    return Runner(baobab, app_id, await sign_in(baobab)), f"/console/apps/{app_id}/triggers"


async def set_trigger(visitor: Runner, name: str, **body: object) -> None:
    baobab = visitor.baobab
    answer = await baobab.client.put(f"/v1/{visitor.app_id}/triggers/{name}", json=body, headers=baobab.owner)
    assert answer.status_code == 200, answer.text


async def test_a_trigger_is_tried_and_what_it_started_is_started_again(baobab: Baobab) -> None:
    visitor, path = await open_page(baobab)
    assert "Nothing starts by itself yet" in (await visitor.open(path)).text
    await set_trigger(visitor, "paid", event="custom.order-paid", agent="helper")
    await set_trigger(visitor, "morning", event="schedule", schedule="0 7 * * *", agent="helper")
    triggers_page = (await visitor.open(path)).text
    assert "custom.order-paid" in triggers_page
    assert "0 7 * * * (UTC)" in triggers_page
    page = await visitor.open(f"{path}/paid")
    assert "through the key" in page.text
    answer = await visitor.send(f"{path}/paid/test", page)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path}/paid")
    await run_due_jobs(baobab.application)
    page = await visitor.open(f"{path}/paid")
    assert page.text.count("its run") == 1
    run_page = await visitor.open(re.findall(r'href="(/console/apps/[^"]+/runs/[^"]+)"', page.text)[0])
    assert "trigger:paid" in run_page.text
    [again] = re.findall(r'action="([^"]+/send-again)"', page.text)
    await visitor.send(again, page)
    await run_due_jobs(baobab.application)
    runs = await baobab.client.get(f"/v1/{visitor.app_id}/agents/helper/runs", headers=baobab.owner)
    assert len(runs.json()["runs"]) == 2


async def test_a_trigger_is_paused_resumed_and_deleted(baobab: Baobab) -> None:
    visitor, path = await open_page(baobab)
    await set_trigger(visitor, "paid", event="custom.order-paid", agent="helper")
    page = await visitor.open(f"{path}/paid")
    await visitor.send(f"{path}/paid/pause", page)
    page = await visitor.open(f"{path}/paid")
    assert "paused" in page.text
    await visitor.send(f"{path}/paid/resume", page)
    page = await visitor.open(f"{path}/paid")
    assert "<dd>active</dd>" in page.text
    answer = await visitor.send(f"{path}/paid/delete", page)
    assert answer.headers["location"] == path
    assert "Nothing starts by itself yet" in (await visitor.open(path)).text


async def test_a_trigger_is_made_changed_and_keeps_what_was_typed_when_it_is_wrong(baobab: Baobab) -> None:
    visitor, path = await open_page(baobab)
    columns = {"id": {"type": "integer", "primaryKey": True}, "status": {"type": "text"}}
    schema = {"schema": {"tables": {"tickets": {"columns": columns}}}}
    await baobab.client.post(f"/v1/{visitor.app_id}/schema/apply", json=schema, headers=baobab.owner)
    editor = f"/console/apps/{visitor.app_id}/new-trigger"
    rule = '{"==": [{"var": "event.data.row.status"}, "open"]}'
    fields = {"name": "opened", "event": "row.inserted", "table": "tickets", "agent": "helper", "filter": rule}
    assert "&#34;{{ event.data.row }}&#34;" in (await visitor.open(editor)).text
    answer = await send_from(visitor, editor, f"{editor}/save", **fields | {"filter": "{"})
    assert answer.status_code == 400
    assert read_problem(find_form(answer, f"{editor}/save"), "filter").startswith("The filter is not JSON")
    answer = await visitor.send(f"{editor}/save", await visitor.open(editor), **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path}/opened")
    page = await visitor.open(f"{path}/opened/edit")
    assert 'value="tickets" selected' in page.text
    changes = {"event": "schedule", "schedule": "0 7 * * *", "time_zone": "Europe/Prague", "agent": "helper"}
    await visitor.send(f"{path}/opened/save", page, **changes)
    trigger_page = (await visitor.open(f"{path}/opened")).text
    assert "0 7 * * *" in trigger_page
    assert "Europe/Prague" in trigger_page


async def test_the_secret_of_a_webhook_is_shown_once(baobab: Baobab) -> None:
    visitor, path = await open_page(baobab)
    editor = f"/console/apps/{visitor.app_id}/new-trigger"
    fields = {"name": "tell", "event": "row.inserted", "own_event": "custom.paid", "webhook": "https://hooks.example/a"}
    answer = await visitor.send(f"{editor}/save", await visitor.open(editor), **fields)
    assert "whsec_" in answer.text
    page = await visitor.open(f"{path}/tell/edit")
    assert "whsec_" not in page.text
    assert 'value="custom.paid"' in page.text
    answer = await visitor.send(f"{path}/tell/save", page, **{**fields, "name": ""})
    assert answer.headers["location"] == f"{path}/tell"
