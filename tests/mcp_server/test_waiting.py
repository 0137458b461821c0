"""A call that starts work can wait for its end, because a model cannot sleep between two looks."""

from typing import Any

from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool

ECHO: dict[str, Any] = {
    "spec_version": 1,
    "entry": "done",
    "nodes": {"done": {"type": "end", "output_template": {"greeting": "Hello, {{ input.name }}"}}},
    "edges": [],
}
QUESTION: dict[str, Any] = {
    "spec_version": 1,
    "entry": "ask",
    "nodes": {
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "May I?"},
            "output_key": "answer",
        },
        "done": {"type": "end", "output_template": "{{ state.answer.approved }}"},
    },
    "edges": [{"from": "ask", "to": "done"}],
    "tools": {"builtin": ["interrupt"]},
}


async def create_agent(baobab: Baobab, graph: dict[str, Any], **settings: Any) -> str:
    """A new app with the agent `one`."""
    app_id = await baobab.create_app()
    body = {"name": "one", "graph_spec": graph, **settings}
    response = await baobab.client.post(f"/v1/{app_id}/agents", json=body, headers=baobab.owner)
    assert response.status_code == 201, response.text
    return app_id


async def call(baobab: Baobab, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await call_tool(baobab, tool, arguments)
    assert not result["isError"], result
    content: dict[str, Any] = result["structuredContent"]
    return content


async def test_a_start_that_waits_answers_what_the_run_returned(baobab: Baobab) -> None:
    app_id = await create_agent(baobab, ECHO)
    body = {"app_id": app_id, "name": "one", "input": {"name": "Ada"}}
    run = await call(baobab, "agents_run", **body, wait_seconds=55)
    assert (run["status"], run["output"]) == ("completed", {"greeting": "Hello, Ada"})
    again = await call(baobab, "agents_run", **body, wait_seconds=1)
    assert (again["run_id"], again["replayed"]) == (run["run_id"], True)


async def test_a_start_that_does_not_wait_answers_as_before(baobab: Baobab) -> None:
    app_id = await create_agent(baobab, ECHO)
    path = f"/v1/{app_id}/agents/one/runs"
    response = await baobab.client.post(path, json={"input": {"name": "Ada"}}, headers=baobab.owner)
    assert response.json().keys() == {"run_id", "status"}
    run_id = response.json()["run_id"]
    answer = await baobab.client.get(f"{path}/{run_id}?wait_seconds=55", headers=baobab.owner)
    assert answer.json()["run"]["status"] == "completed"
    refusal = await baobab.client.get(f"{path}/{run_id}?wait_seconds=56", headers=baobab.owner)
    assert refusal.status_code == 400


async def test_a_run_that_waits_for_a_person_is_not_waited_for(baobab: Baobab) -> None:
    app_id = await create_agent(baobab, QUESTION)
    agent = {"app_id": app_id, "name": "one"}
    run = await call(baobab, "agents_run", **agent, input={}, wait_seconds=55)
    assert run["status"] == "paused"
    [approval] = (await call(baobab, "approvals_list", app_id=app_id))["approvals"]
    response = await baobab.client.post(f"/v1/approvals/{approval['id']}/approve", json={}, headers=baobab.owner)
    assert response.status_code == 200, response.text
    state = await call(baobab, "agents_runs_get", **agent, id=run["run_id"], wait_seconds=55)
    assert state["run"]["status"] in ("completed", "paused", "running", "queued")


async def test_adding_a_document_waits_until_it_can_be_found(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    await call(baobab, "rag_collections_create", app_id=app_id, name="house")
    text = {"app_id": app_id, "name": "house", "text": "The keys are under the mat."}
    document = await call(baobab, "rag_ingest", **text, wait_seconds=55)
    assert document["status"] == "ready", document
    assert document["message"] == "The document has been read."
    again = await call(baobab, "rag_ingest", **text, wait_seconds=55)
    assert "already" in again["message"]
    found_chunks = await call(baobab, "rag_query", app_id=app_id, name="house", query="Where are the keys?")
    assert "mat" in found_chunks["chunks"][0]["text"]


async def test_a_document_that_cannot_be_read_does_not_say_that_it_will_be(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    await call(baobab, "rag_collections_create", app_id=app_id, name="house")
    page = {"app_id": app_id, "name": "house", "text": "not a page", "filename": "a.pdf"}
    document = await call(baobab, "rag_ingest", **page, wait_seconds=55)
    assert document["status"] == "failed", document
    assert document["errorMessage"]
    assert document["message"] == "The document could not be read: `errorMessage` says why."
