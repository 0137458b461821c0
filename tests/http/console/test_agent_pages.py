"""The pages on which agents are made, changed, tried and talked to, and on which models are tried."""

import json
import re
from html import unescape

import pytest

from tests.http.console.test_console import HOSTILE
from tests.http.console.test_runs import Runner, build_graph
from tests.jobs import run_due_jobs


async def test_an_agent_is_made_from_the_graph_that_the_page_proposes_and_talked_to(visitor: Runner) -> None:
    new = f"/console/apps/{visitor.app_id}/new-agent"
    page = await visitor.open(new)
    assert "The graph is valid." in page.text
    graph = json.loads(unescape(re.findall(r"<textarea[^>]*>(.*?)</textarea>", page.text, re.DOTALL)[0]))
    graph["nodes"]["answer"]["input_template"] = "/say {{ input.question }}"
    response = await visitor.send(f"{new}/save", page, name="talker", graph=json.dumps(graph))
    assert response.headers["location"] == f"/console/apps/{visitor.app_id}/agents/talker"
    chat = f"/console/apps/{visitor.app_id}/agents/talker/chat"
    page = await visitor.open(chat)
    fields = {name: re.findall(rf'name="{name}" value="([^"]+)"', page.text)[0] for name in ("thread", "once")}
    chat_response = await visitor.send(chat, page, text=f"Hello {HOSTILE}", **fields)
    await visitor.send(chat, page, text=f"Hello {HOSTILE}", **fields)
    await run_due_jobs(visitor.baobab.application)
    page = await visitor.open(chat_response.headers["location"])
    assert page.text.count('aria-label="It answered"') == 1
    assert "<script>alert" not in page.text


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ("{", "It is not JSON"),
        ("[]", "The graph must be a JSON object"),
        ('{"spec_version": 1}', "<code>"),
        ("[" * 100_000, "It is nested too deeply"),
        (json.dumps({"spec_version": 1, "entry": HOSTILE, "nodes": {}, "edges": []}), "<li"),
    ],
)
async def test_a_graph_that_is_wrong_is_not_kept_and_what_is_wrong_is_said(
    visitor: Runner, graph: str, text: str
) -> None:
    await visitor.create_agent("keeper", build_graph())
    path = f"/console/apps/{visitor.app_id}/agents/keeper"
    page = await visitor.open(f"{path}/edit")
    for action in ("check", "save"):
        answer = await visitor.send(f"{path}/{action}", page, graph=graph)
        assert answer.status_code == 200
        assert text in answer.text
        assert "<script>alert" not in answer.text
    changed_graph = build_graph() | {"limits": {"max_steps": 7}}
    assert (await visitor.send(f"{path}/save", page, graph=json.dumps(changed_graph))).status_code == 303
    assert "max_steps&#34;: 7" in (await visitor.open(path)).text


async def test_a_model_is_tried_and_its_answer_is_shown_with_what_it_took(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/models"
    page = await visitor.open(path)
    models = re.findall(r'<option value="([^"]+)"', page.text)
    arguments = {"model": models[0], "system": "", "message": "/say <b>Hi</b>", "max_tokens": "", "temperature": ""}
    answer = await visitor.send(f"{path}/try", page, **arguments)
    assert "&lt;b&gt;Hi&lt;/b&gt;" in answer.text
    assert "tokens in" in answer.text
    wrong = await visitor.send(f"{path}/try", page, **{**arguments, "model": "nobody/nothing"})
    assert 'role="alert"' in wrong.text


async def test_a_run_shows_what_its_model_was_asked(visitor: Runner) -> None:
    nodes = {
        "say": {"type": "llm", "input_template": "/say {{ input.key }}", "output_key": "answer"},
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    }
    edges = [{"from": "say", "to": "done"}]
    await visitor.create_agent("sayer", {"spec_version": 1, "entry": "say", "nodes": nodes, "edges": edges})
    run = await visitor.run("sayer", key="a-greeting")
    page = await visitor.open(run)
    assert "/say a-greeting" in page.text
    (path,) = set(re.findall(r'href="(/console[^"]+/model-calls/\d+)"', page.text))
    assert "/say a-greeting" in (await visitor.open(path)).text
    missing = await visitor.baobab.client.get(f"{path}999", headers=visitor.browser)
    assert missing.status_code == 404


async def test_a_budget_is_set_and_deleted_and_the_region_is_shown(visitor: Runner) -> None:
    page = await visitor.open("/console/usage")
    (of,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    fields = {"of": of, "subject": "app", "subject_id": visitor.app_id, "period": "day"}
    assert (await visitor.send("/console/usage/budgets/set", page, most_usd="2.50", **fields)).status_code == 303
    assert f'name="subject_id" value="{visitor.app_id}"' in (await visitor.open("/console/usage")).text
    assert (await visitor.send("/console/usage/budgets/delete", page, **fields)).status_code == 303
    assert f'name="subject_id" value="{visitor.app_id}"' not in (await visitor.open("/console/usage")).text
    assert "one region" in (await visitor.open(f"/console/apps/{visitor.app_id}/migrations")).text
