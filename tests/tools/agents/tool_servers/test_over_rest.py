"""Tool servers over REST, and what visitors see of them."""

import asyncio

import pytest

from baobab.runtime.agents.remote.errors import ToolServerFailed
from tests.conftest import Baobab
from tests.jobs import TIMEOUT_SECONDS, run_due_jobs
from tests.tools.agents.conftest import build_graph
from tests.tools.agents.tool_server import FakeToolServer
from tests.tools.agents.tool_servers.servers import TOKEN, call_graph


async def test_servers_over_rest(baobab: Baobab, fake: FakeToolServer) -> None:
    path = f"/v1/{await baobab.create_app()}/mcp-servers"
    body = {"name": "docs", "url": fake.mcp, "transport": "http", "auth": {"type": "bearer", "token": TOKEN}}
    response = await baobab.client.post(path, json=body, headers=baobab.owner)
    assert response.status_code == 201, response.text
    server = response.json()["mcp_server"]
    assert response.json()["server"] == server
    assert (server["transport"], server["auth"]) == ("streamable_http", {"type": "bearer", "token": "***"})
    assert (await baobab.client.post(path, json=body, headers=baobab.owner)).status_code == 409
    assert (await baobab.client.get(path, headers=baobab.owner)).json() == {
        "mcp_servers": [server],
        "servers": [server],
    }
    probed_response = await baobab.client.post(f"{path}/{server['id']}/probe", headers=baobab.owner)
    assert (probed_response.status_code, probed_response.json()) == (200, {"ok": True, "tools": server["tools"]})
    fake.behaviour = "500"
    probed_response = await baobab.client.post(
        f"{path}/{server['id']}/probe", json={"accept": True}, headers=baobab.owner
    )
    assert (probed_response.status_code, probed_response.json().pop("remediation")) == (
        502,
        ToolServerFailed.remediation,
    )
    assert probed_response.json().items() >= {"ok": False, "error": "The tool server answered 500."}.items()
    response = await baobab.client.get(path, headers=baobab.owner)
    (server,) = response.json()["mcp_servers"]
    assert response.json()["servers"] == [server]
    assert (server["status"], server["problem"]) == ("unhealthy", "The tool server answered 500.")
    removed_response = await baobab.client.delete(f"{path}/{server['id']}", headers=baobab.owner)
    assert (removed_response.status_code, removed_response.content) == (204, b"")
    for wrong in ({"auth": {"type": "basic"}}, {"auth": {"type": "bearer"}}, {"transport": "stdio"}, {"name": "\n"}):
        refusal = await baobab.client.post(path, json={**body, **wrong}, headers=baobab.owner)
        assert refusal.status_code == 400, refusal.text
        assert TOKEN not in refusal.text


async def test_visitors_see_neither_what_the_app_pays_nor_what_its_credentials_bring(
    baobab: Baobab, fake: FakeToolServer
) -> None:
    app = await baobab.create_app()
    base, anon = f"/v1/{app}", {"apikey": (await baobab.application.services.directory.app(app)).anon_key}
    body = {"name": "docs", "url": fake.mcp, "tool_acl": {"search": {"exposed_to": "end_user"}}}
    assert (await baobab.client.post(f"{base}/mcp-servers", json=body, headers=baobab.owner)).status_code == 201
    search = {"source": "mcp", "server_id": "docs", "name": "search"}
    call = {"type": "tool", "tool_ref": search, "args_template": {"query": "secret-plan"}, "output_key": "found"}
    say = {"type": "llm", "input_template": "/say Hello.", "output_key": "said"}
    nodes = {"call": call, "say": say, "done": {"type": "end", "output_template": "{{ state.said }}"}}
    tools = {"mcp_servers": [{"server_id": "docs", "tools": ["search"]}]}
    spec = build_graph(nodes, ("call", "say"), ("say", "done"), tools=tools)
    agent = {"name": "a", "graph_spec": spec, "visibility": "public", "safety_acknowledged": True}
    assert (await baobab.client.post(f"{base}/agents", json=agent, headers=baobab.owner)).status_code == 201
    response = await baobab.client.post(f"{base}/public/agents/a/runs", json={"input": {}}, headers=anon)
    opened_body = response.json()
    await run_due_jobs(baobab.application)
    path = f"{base}/public/runs/{opened_body['run_id']}"
    answers = [await baobab.client.get(f"{path}/events.json", headers=anon)]
    answers.append(await baobab.client.get(f"{path}/events?token={opened_body['stream_token']}"))
    answers.append(await baobab.client.get(path, headers=anon))
    for answer in answers:
        assert answer.status_code == 200
        for hidden_text in ("secret-plan", "search done", "cost_usd", '"model"'):
            assert hidden_text not in answer.text
    assert "tool_call_end" in answers[0].text
    assert "Hello." in answers[1].text
    own = await baobab.client.get(f"{base}/agents/a/runs/{opened_body['run_id']}/events.json", headers=baobab.owner)
    for text in ("secret-plan", "search done", "cost_usd", '"model"'):
        assert text in own.text


@pytest.mark.parametrize("inside", [False, True], ids=["its own tool", "a run below"])
async def test_visitors_do_not_read_the_words_of_a_tool_server_that_failed_and_owners_do(
    baobab: Baobab, fake: FakeToolServer, inside: bool
) -> None:
    fake.fails = True
    app = await baobab.create_app()
    base, anon = f"/v1/{app}", {"apikey": (await baobab.application.services.directory.app(app)).anon_key}
    body = {"name": "docs", "url": fake.mcp, "tool_acl": {"search": {"exposed_to": "end_user"}}}
    assert (await baobab.client.post(f"{base}/mcp-servers", json=body, headers=baobab.owner)).status_code == 201
    delegate = {"type": "agent", "agent": "a", "input_template": {}, "output_key": "found"}
    nodes = {"call": delegate, "done": {"type": "end", "output_template": "done"}}
    for name, spec in (
        ("a", call_graph({"id": "docs"}, "search", {"query": "x"})),
        ("above", build_graph(nodes, ("call", "done"))),
    ):
        agent = {"name": name, "graph_spec": spec, "visibility": "public", "safety_acknowledged": True}
        response = await baobab.client.post(f"{base}/agents", json=agent, headers=baobab.owner)
        assert response.status_code == 201, response.text
    name = "above" if inside else "a"
    opened_body = (
        await baobab.client.post(f"{base}/public/agents/{name}/runs", json={"input": {}}, headers=anon)
    ).json()
    path, own = f"{base}/public/runs/{opened_body['run_id']}", f"{base}/agents/{name}/runs/{opened_body['run_id']}"
    async with asyncio.timeout(TIMEOUT_SECONDS):
        # A run that waits for another goes on some time after that has ended.
        while (run := (await baobab.client.get(path, headers=anon)).json()["run"])["status"] in ("queued", "running"):
            await asyncio.sleep(0.1)
    assert run["error"] == {"type": "tool_failed", "message": "A tool that the agent uses failed."}
    events = await baobab.client.get(f"{path}/events.json", headers=anon)
    assert events.json()["events"][-1]["payload"] == {"type": "tool_failed", "error": run["error"]["message"]}
    stream = await baobab.client.get(f"{path}/events?token={opened_body['stream_token']}")
    assert [text for text in (events.text, stream.text) if "It is full." in text] == []
    for read in (own, f"{own}/events.json"):
        assert "It is full." in (await baobab.client.get(read, headers=baobab.owner)).text
