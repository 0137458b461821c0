"""The form of a question: made from its schema, and what the run gets of it."""

import re
from html import unescape
from typing import Any

import pytest

from tests.conftest import ADDRESS, Baobab
from tests.http.console.test_console import HOSTILE, find_csrf, sign_in
from tests.http.console.test_runs import Runner
from tests.jobs import let_decisions_count

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "title": "Why"},
        "amount": {"type": "number", "description": "In dollars."},
        "days": {"type": "integer"},
        "urgent": {"type": "boolean"},
        "colour": {"enum": ["red", "green"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "who": {"type": "array", "items": {"enum": ["ada", "bob"]}},
    },
    "required": ["reason", "colour"],
}


class Questioner(Runner):
    """Asks a question with a schema, and shows the page of it."""

    async def ask(self, schema: Any, data: Any = None) -> tuple[str, str]:
        """The paths of the run and of its question."""
        arguments = {"reason": "How?", "answer_schema": schema} | ({} if data is None else {"data": data})
        ref = {"source": "builtin", "name": "interrupt"}
        node = {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": "answer"}
        graph = {"spec_version": 1, "entry": "ask", "edges": [{"from": "ask", "to": "done"}]}
        graph["nodes"] = {"ask": node, "done": {"type": "end", "output_template": "{{ state.answer.data }}"}}
        await self.create_agent("questioner", graph | {"tools": {"builtin": ["interrupt"]}})
        run = await self.run("questioner")
        (approval_id,) = set(re.findall(r"/console/approvals/(appr_\w+)", (await self.open(run)).text))
        return run, f"/console/approvals/{approval_id}"

    async def read_run(self, run: str) -> dict[str, Any]:
        await let_decisions_count(self.baobab.application)
        run_json: dict[str, Any] = (await self.open(f"{run}/run.json")).json()["run"]
        return run_json


@pytest.fixture
async def questioner(baobab: Baobab) -> Questioner:
    return Questioner(baobab, await baobab.create_app(), await sign_in(baobab))


async def test_each_type_has_a_field_and_the_run_gets_the_answer(questioner: Questioner) -> None:
    run, path = await questioner.ask(SCHEMA, {"amount": 12.5, "tags": ["a", "b"], "who": ["bob"]})
    page = await questioner.open(path)
    assert "“" not in page.text
    assert 'value="12.5"' in page.text
    assert ">\na\nb</textarea>" in page.text
    assert re.search(r'<input type="checkbox" name="answer-6.1" value="yes" checked>', page.text)
    # Those that are required, in their order; then the others by name.
    form = {"answer-0": "Because.", "answer-1": "green", "answer-2": "0.5", "answer-3": "3", "answer-5": "yes"}
    form |= {"answer-4": "x\r\n\r\ny", "answer-6.0": "yes"}
    response = await questioner.send(f"{path}/answer", page, **form)
    assert response.status_code == 303, response.text
    assert (await questioner.read_run(run))["output"] == {
        "reason": "Because.",
        "amount": 0.5,
        "days": 3,
        "urgent": True,
        "colour": "green",
        "tags": ["x", "y"],
        "who": ["ada"],
    }


@pytest.mark.parametrize(
    "wrong", [{"answer-2": "many"}, {"answer-3": "1.5"}, {"answer-2": "1e999"}, {"answer-1": "blue"}]
)
async def test_an_answer_of_another_shape_is_refused_and_the_question_still_waits(
    questioner: Questioner, wrong: dict[str, str]
) -> None:
    run, path = await questioner.ask(SCHEMA)
    arguments = {"answer-0": "Because.", "answer-1": "red", **wrong}
    refusal = await questioner.send(f"{path}/answer", await questioner.open(path), **arguments)
    assert refusal.status_code == 400
    assert (await questioner.read_run(run))["status"] == "paused"


async def test_a_schema_without_properties_is_answered_as_json(questioner: Questioner) -> None:
    run, path = await questioner.ask({"type": "object"})
    page = await questioner.open(path)
    response = await questioner.send(f"{path}/answer", page, answer='{"other": 1}')
    assert response.status_code == 303, response.text
    assert (await questioner.read_run(run))["output"] == {"other": 1}


@pytest.mark.parametrize("about", [{"type": "object"}, {"type": ["object", "null"]}])
async def test_a_property_that_no_field_fits_is_typed_as_json(questioner: Questioner, about: Any) -> None:
    properties = {"deep": about, "why": {"type": "string"}}
    run, path = await questioner.ask({"type": "object", "properties": properties, "required": ["deep"]})
    fields = {"answer-0": '{"a": ', "answer-1": "Because."}
    headers = {**questioner.browser, "referer": ADDRESS + path}
    form = {"csrf": find_csrf(await questioner.open(path)), **fields}
    refusal = await questioner.baobab.client.post(f"{path}/answer", data=form, headers=headers)
    assert refusal.status_code == 400
    assert "This is not JSON" in refusal.text
    assert 'value="Because."' in refusal.text
    form["answer-0"] = '{"a": 1}'
    assert (await questioner.baobab.client.post(f"{path}/answer", data=form, headers=headers)).status_code == 303
    assert (await questioner.read_run(run))["output"] == {"deep": {"a": 1}, "why": "Because."}


async def test_words_of_a_schema_are_inert(questioner: Questioner) -> None:
    schema = {"properties": {"x": {"type": "string", "title": HOSTILE, "description": HOSTILE, "default": HOSTILE}}}
    _, path = await questioner.ask(schema)
    page = await questioner.open(path)
    assert "<script>alert" not in page.text
    assert "&lt;/q&gt;&lt;script&gt;" in page.text
    assert "\\u202egnp" in unescape(page.text)


async def test_what_is_no_schema_ends_the_run_with_a_reason(questioner: Questioner) -> None:
    run = None
    try:
        # Without the placeholder, the agent could not be made.
        run, _ = await questioner.ask({"type": "{{ input.key }}"})
    except ValueError:
        run_list = await questioner.open(f"/console/apps/{questioner.app_id}/runs?agent=questioner&status=failed")
        assert "JSON Schema" in run_list.text
    assert run is None


async def test_the_page_of_a_call_says_what_its_run_did_and_cost(questioner: Questioner) -> None:
    run, path = await questioner.ask(SCHEMA)
    page = await questioner.open(path)
    assert ">The run</h2>" in page.text
    assert f'href="{run}"' in page.text
    assert "$0.00" in page.text
