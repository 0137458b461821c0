"""Agents over REST: what documents 3 and 4 say of paths, fields and codes."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.conftest import ADDRESS, Baobab
from tests.jobs import run_due_jobs
from tests.servers import TIMEOUT_SECONDS
from tests.tools.agents.conftest import build_graph

GREET: dict[str, Any] = build_graph(
    {
        "greet": {"type": "llm", "input_template": "/say Hello {{ input.name }}.", "output_key": "said"},
        "done": {"type": "end", "output_template": {"said": "{{ state.said }}"}},
    },
    ("greet", "done"),
)
ASK: dict[str, Any] = build_graph(
    {
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "Go on?"},
        },
        "done": {"type": "end", "output_template": "done"},
    },
    ("ask", "done"),
    tools={"builtin": ["interrupt"]},
)


class App:
    """An app's agents, by REST."""

    def __init__(self, baobab: Baobab, app_id: str) -> None:
        self.baobab = baobab
        self.id = app_id
        self.owner = baobab.owner

    async def ask(self, method: str, path: str, body: Any = None, by: dict[str, str] | None = None) -> httpx.Response:
        headers = self.owner if by is None else by
        return await self.baobab.client.request(method, f"/v1/{self.id}{path}", json=body, headers=headers)

    async def create_agent(self, name: str, spec: dict[str, Any], **settings: Any) -> dict[str, Any]:
        answer = await self.ask("POST", "/agents", {"name": name, "graph_spec": spec, **settings})
        assert answer.status_code == 201, answer.text
        agent: dict[str, Any] = answer.json()["agent"]
        return agent

    async def run_due_jobs(self) -> None:
        await run_due_jobs(self.baobab.application)

    async def anon_headers(self) -> dict[str, str]:
        app = await self.baobab.application.services.directory.app(self.id)
        return {"apikey": app.anon_key}


@pytest.fixture
async def app(baobab: Baobab) -> App:
    return App(baobab, await baobab.create_app())


async def test_an_agent_is_made_read_changed_and_removed(app: App) -> None:
    agent = await app.create_agent("greeter", GREET, description="Says hello.", daily_budget_usd=1.5)
    assert agent["status"] == "active"
    assert agent["visibility"] == "private"
    assert agent["daily_budget_usd"] == "1.50"
    assert (await app.ask("GET", "/agents")).json()["agents"] == [agent]
    assert (await app.ask("GET", "/agents/greeter")).json()["agent"] == agent
    answer = await app.ask("PATCH", "/agents/greeter", {"status": "disabled", "max_concurrent_runs": 3})
    assert answer.json()["agent"]["max_concurrent_runs"] == 3
    response = await app.ask("POST", "/agents/greeter/runs", {"input": {}})
    assert (response.status_code, response.json()["error"]) == (400, "Agent is disabled")
    assert (await app.ask("DELETE", "/agents/greeter")).status_code == 204
    assert (await app.ask("GET", "/agents/greeter")).json()["code"] == "agent_not_found"
    assert (await app.create_agent("greeter", GREET))["id"] != agent["id"]


async def test_names_are_taken_once(app: App) -> None:
    await app.create_agent("greeter", GREET)
    again = await app.ask("POST", "/agents", {"name": "greeter", "graph_spec": GREET})
    assert (again.status_code, again.json()["error"]) == (409, "agent_exists")
    bad = await app.ask("POST", "/agents", {"name": "Greeter!", "graph_spec": GREET})
    assert bad.status_code == 400


async def test_the_body_of_a_new_agent_can_be_looked_through_without_its_name(app: App) -> None:
    body = {"graph_spec": GREET, "visibility": "private", "max_concurrent_runs": 2}
    for name in ("greeter", "_"):
        answer = await app.ask("POST", f"/agents/{name}/validate", body)
        assert answer.json() == {"valid": True}, name
        response = await app.ask("POST", f"/agents/{name}/validate", {**body, "name": "greeter"})
        assert response.json() == {"valid": True}, name
    refusal = await app.ask("POST", "/agents/_/validate", {**body, "visibilty": "private"})
    assert refusal.status_code == 400
    other = await app.ask("POST", "/agents/greeter/validate", {**body, "name": "another"})
    assert other.status_code == 400


@pytest.mark.parametrize("version", [1, "1"])
async def test_a_graph_comes_back_with_the_version_that_was_sent(app: App, version: Any) -> None:
    agent = await app.create_agent("greeter", {**GREET, "spec_version": version})
    assert agent["graph_spec"]["spec_version"] == version
    read = (await app.ask("GET", "/agents/greeter")).json()["agent"]
    assert type(read["graph_spec"]["spec_version"]) is type(version)
    assert (await app.ask("POST", "/agents/greeter/runs", {"input": {"name": "Amina"}})).status_code == 201


async def test_the_example_of_the_tool_is_right(app: App) -> None:
    example = app.baobab.application.registry.tools["agents_create"].examples["graph_spec"]
    answer = await app.ask("POST", "/agents/_/validate", {"graph_spec": example})
    assert answer.json()["valid"], answer.json()


async def test_the_nearest_tool_is_told(app: App) -> None:
    spec = {**ASK, "tools": {"builtin": ["interupt"]}}
    body = (await app.ask("POST", "/agents/_/validate", {"graph_spec": spec})).json()
    assert any("did you mean interrupt?" in issue["message"] for issue in body["issues"])


async def test_a_graph_is_looked_through(app: App) -> None:
    for name in ("any", "_"):
        assert (await app.ask("POST", f"/agents/{name}/validate", {"graph_spec": GREET})).json() == {"valid": True}
    spec = {**GREET, "spec_version": "1"}
    assert (await app.create_agent("texted", spec))["graph_spec"] == spec
    wrong = {**GREET, "entry": "nowhere"}
    body = (await app.ask("POST", "/agents/any/validate", {"graph_spec": wrong})).json()
    assert body["valid"] is False
    assert ["entry"] in [issue["path"] for issue in body["issues"]]
    refusal = await app.ask("POST", "/agents", {"name": "wrong", "graph_spec": wrong})
    assert (refusal.status_code, refusal.json()["code"]) == (400, "invalid_graph_spec")
    assert refusal.json()["issues"] == body["issues"]
    assert refusal.json()["message"].startswith("The graph is not valid: entry ")


NO_GRAPHS: list[Any] = [None, "text", 1, True, [], [{}]]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "VALIDATION_MISSING_FIELD"),
        ({"graph_spec": {}, "more": 1}, 400, "VALIDATION_INVALID_SCHEMA"),
        ({"graph_spec": {"a": "\x00"}}, 400, None),
        *(({"graph_spec": graph}, 422, "validation_error") for graph in NO_GRAPHS),
        ({"graph_spec": {}}, 200, None),
    ],
)
async def test_what_is_no_graph_at_all_is_told_apart_from_a_graph_that_is_wrong(
    app: App, body: Any, status: int, code: str | None
) -> None:
    answer = await app.ask("POST", "/agents/any/validate", body)
    answer_json = answer.json()
    assert answer.status_code == status, answer_json
    assert code is None or answer_json["code"] == code
    if status == 400:
        assert answer_json["error"] == "Invalid body"
        assert {"path", "message"} == set(answer_json["issues"][0])
    if status == 422:
        assert answer_json["issues"] == [{"path": [], "message": "must be an object"}]
    if status == 200:
        assert answer_json["valid"] is False
        assert {"path": ["nodes"], "message": "is required"} in answer_json["issues"]


async def test_a_public_agent_needs_somebody_who_has_looked(app: App) -> None:
    refusal = await app.ask("POST", "/agents", {"name": "open", "graph_spec": ASK, "visibility": "public"})
    assert (refusal.status_code, refusal.json()["error"]) == (409, "unsafe_public_visibility")
    assert refusal.json()["offending_tools"] == ["interrupt"]


async def test_the_same_body_leads_to_the_same_run_and_another_waits(app: App) -> None:
    await app.create_agent("greeter", GREET)
    first = await app.ask("POST", "/agents/greeter/runs", {"input": {"name": "Ada"}})
    assert first.status_code == 201
    assert first.json()["status"] == "queued"
    again = await app.ask("POST", "/agents/greeter/runs", {"input": {"name": "Ada"}})
    assert again.status_code == 200
    assert again.json()["run_id"] == first.json()["run_id"]
    other = await app.ask("POST", "/agents/greeter/runs", {"input": {"name": "Bob"}})
    assert other.status_code == 409
    assert other.json()["error"] == "conflict"
    assert other.json()["existing_run_id"] == first.json()["run_id"]
    body = {"input": {"name": "Bob"}, "idempotency_key": "k1"}
    assert (await app.ask("POST", "/agents/greeter/runs", body)).status_code == 201
    response = await app.ask("POST", "/agents/greeter/runs", {**body, "input": {}})
    assert (response.status_code, response.json()["error"]) == (409, "idempotency_key_reuse")


async def test_starts_at_once_are_one_run(app: App) -> None:
    await app.create_agent("greeter", GREET)
    body = {"input": {"name": "Ada"}}
    answers = await asyncio.gather(*(app.ask("POST", "/agents/greeter/runs", body) for _ in range(10)))
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]


async def test_a_run_is_followed_to_its_end_and_from_where_one_left_off(app: App) -> None:
    await app.create_agent("greeter", GREET)
    run_id = (await app.ask("POST", "/agents/greeter/runs", {"input": {"name": "Ada"}})).json()["run_id"]
    path = f"/agents/greeter/runs/{run_id}"
    answer = await app.ask("GET", f"{path}/events")
    assert answer.headers["content-type"] == "text/event-stream"
    frames = [frame for frame in answer.text.split("\n\n") if frame.startswith("id: ")]
    assert [frame.split("\n")[0] for frame in frames] == [f"id: {n}" for n in range(1, len(frames) + 1)]
    assert frames[0].split("\n")[1] == "event: run_start"
    assert json.loads(frames[-1].split("\n")[2].removeprefix("data: "))["output"]["said"].endswith("Hello Ada.")
    rest = await app.ask("GET", f"{path}/events", by={**app.owner, "last-event-id": str(len(frames) - 1)})
    assert rest.text.count("id: ") == 1
    events = (await app.ask("GET", f"{path}/events.json?since_seq=2&limit=1")).json()["events"]
    assert [event["seq"] for event in events] == [3]
    for query, first in (("limit=100000", 1), ("since_seq=2&limit=501", 3)):
        assert (await app.ask("GET", f"{path}/events.json?{query}")).json()["events"][0]["seq"] == first
    rest = await app.ask("GET", f"{path}/events?since_seq={len(frames) - 1}")
    assert rest.text.count("id: ") == 1
    run = (await app.ask("GET", path)).json()["run"]
    assert run["status"] == "completed"
    assert run["caller_kind"] == "dashboard"


@pytest.mark.parametrize("last", ["99", "2147483647", "9" * 20])
async def test_an_event_that_a_run_has_not_come_to_is_taken_for_its_latest(app: App, last: str) -> None:
    await app.create_agent("asker", ASK)
    run_id = (await app.ask("POST", "/agents/asker/runs", {"input": {}})).json()["run_id"]
    await app.run_due_jobs()
    path = f"/agents/asker/runs/{run_id}"
    await app.ask("POST", f"{path}/cancel")
    response = await app.ask("GET", f"{path}/events", by={**app.owner, "last-event-id": last})
    assert (response.status_code, "id:" in response.text) == (200, False)


@pytest.mark.own_installation
async def test_a_run_that_waits_for_nobody_any_more_says_so_at_once(app: App) -> None:
    await app.create_agent("asker", ASK)
    run_id = (await app.ask("POST", "/agents/asker/runs", {"input": {}})).json()["run_id"]
    await app.run_due_jobs()
    path = f"/agents/asker/runs/{run_id}"
    token = (await app.ask("GET", f"{path}/events.json")).json()["events"][-1]["payload"]["approval_token"]
    answer = await app.ask("POST", f"{path}/resume", {"approval_token": token, "approved": True})
    assert answer.json() == {"run_id": run_id, "status": "running"}
    assert (await app.ask("GET", path)).json()["run"]["status"] != "paused"
    await app.run_due_jobs()
    assert (await app.ask("GET", path)).json()["run"]["status"] == "completed"


async def test_users_do_not_reach_their_runs_of_an_agent_that_has_become_private(app: App) -> None:
    await app.create_agent("asker", ASK, visibility="public", safety_acknowledged=True, dedupe_window_seconds=0)
    ada, anon = await app.baobab.user_headers(app.id, "ada"), await app.anon_headers()
    runs = [
        (await app.ask("POST", "/public/agents/asker/runs", {"input": {}}, by=by)).json()["run_id"]
        for by in (ada, anon)
    ]
    await app.run_due_jobs()
    await app.ask("PATCH", "/agents/asker", {"visibility": "private"})
    body = {"approval_token": "appr_0", "approved": True}
    for by, run_id in zip((ada, anon), runs, strict=True):
        for method, path, request_body in (
            ("GET", "", None),
            ("GET", "/events.json", None),
            ("POST", "/cancel", {}),
            ("POST", "/resume", body),
            ("POST", "/stream-token", {}),
        ):
            refusal = await app.ask(method, f"/public/runs/{run_id}{path}", request_body, by=by)
            assert (refusal.status_code, refusal.json()["error"]) == (403, "forbidden"), path
    assert (await app.ask("GET", "/agents/asker/runs", by=ada)).status_code == 403
    assert (await app.ask("GET", f"/agents/asker/runs/{runs[0]}/events", by=ada)).status_code == 403
    assert (await app.ask("GET", f"/agents/asker/runs/{runs[0]}")).json()["run"]["status"] == "paused"


async def test_a_stranger_s_run_is_no_run(app: App) -> None:
    await app.create_agent("asker", ASK, visibility="authenticated")
    ada, bob = [await app.baobab.user_headers(app.id, name) for name in ("ada", "bob")]
    run_id = (await app.ask("POST", "/agents/asker/runs", {"input": {}}, by=ada)).json()["run_id"]
    await app.run_due_jobs()
    path = f"/agents/asker/runs/{run_id}"
    token = (await app.ask("GET", f"{path}/events.json", by=ada)).json()["events"][-1]["payload"]["approval_token"]
    decision = {"approval_token": token, "approved": True}
    for method, tail, body in (
        ("GET", "", None),
        ("GET", "/events.json", None),
        ("GET", "/events", None),
        ("POST", "/cancel", {}),
        ("POST", "/resume", decision),
    ):
        refusal = await app.ask(method, path + tail, body, by=bob)
        assert (refusal.status_code, refusal.json()["code"]) == (404, "run_not_found"), (method, tail)
    assert (await app.ask("GET", "/agents/asker/runs", by=bob)).json()["runs"] == []
    assert (await app.ask("POST", f"{path}/resume", decision, by=ada)).status_code == 200
    answer = await app.ask("GET", f"{path}/events", by=ada)
    assert "event: run_end" in answer.text


async def test_a_run_acts_as_a_user_where_the_owner_says_so_and_only_as_one_that_there_can_be(app: App) -> None:
    await app.create_agent("asker", ASK, visibility="authenticated", dedupe_window_seconds=0)
    someone = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
    answer = await app.ask("POST", "/agents/asker/runs", {"input": {}, "caller_user_id": someone})
    run = (await app.ask("GET", f"/agents/asker/runs/{answer.json()['run_id']}")).json()["run"]
    assert (run["caller_kind"], run["caller_user_id"]) == ("end_user", someone)
    for wrong in ("ada", "*", "", someone.upper()):
        refusal = await app.ask("POST", "/agents/asker/runs", {"input": {}, "caller_user_id": wrong})
        assert refusal.status_code == 400, wrong
    ada = await app.baobab.user_headers(app.id, "ada")
    refusal = await app.ask("POST", "/agents/asker/runs", {"input": {}, "caller_user_id": someone}, by=ada)
    assert refusal.status_code == 403
    await app.run_due_jobs()


async def test_a_private_agent_is_not_for_users(app: App) -> None:
    await app.create_agent("greeter", GREET)
    refusal = await app.ask(
        "POST", "/agents/greeter/runs", {"input": {}}, by=await app.baobab.user_headers(app.id, "ada")
    )
    assert refusal.status_code == 403


async def test_anybody_runs_a_public_agent_and_follows_it_once_with_a_token(app: App) -> None:
    await app.create_agent("greeter", GREET, visibility="public", safety_acknowledged=True)
    anon = await app.anon_headers()
    assert (await app.ask("POST", "/public/agents/greeter/runs", {"input": {}}, by={})).status_code == 401
    response = await app.ask("POST", "/public/agents/greeter/runs", {"input": {"name": "you"}}, by=anon)
    assert response.status_code == 202, response.text
    run_id, token = response.json()["run_id"], response.json()["stream_token"]
    path = f"/public/runs/{run_id}"
    answer = await app.ask("GET", f"{path}/events?token={token}", by={})
    assert "event: run_end" in answer.text
    for query in (f"?token={token}", "", "?token="):
        again = await app.ask("GET", f"{path}/events{query}", by={})
        assert (again.status_code, again.json()["error"]) == (401, "stream_token_invalid"), query
    for query, by in ((f"?token={token}", {"last-event-id": "3"}), (f"?token={token}&since_seq=3", {})):
        rest = await app.ask("GET", f"{path}/events{query}", by=by)
        assert (rest.status_code, "id: 3\n" in rest.text, "event: run_end" in rest.text) == (200, False, True)
    assert (await app.ask("GET", path, by=anon)).json()["run"]["status"] == "completed"
    assert (await app.ask("POST", f"{path}/stream-token", {}, by=anon)).json()["stream_token"] != token
    assert (await app.ask("GET", f"{path}/ws?token=x", by={})).status_code == 426
    stranger = App(app.baobab, await app.baobab.create_app())
    assert (await app.ask("GET", path, by=await stranger.anon_headers())).status_code == 403


async def test_each_message_of_a_visitor_is_a_run_of_its_own_whichever_way_the_anon_key_comes(app: App) -> None:
    await app.create_agent("greeter", GREET, visibility="public", safety_acknowledged=True, dedupe_window_seconds=3600)
    anon = await app.anon_headers()
    answers = []
    for by in (anon, {"authorization": f"Bearer {anon['apikey']}"}):
        for name in ("Ada", "Ada", "Bob"):
            body = {"input": {"name": name}}
            answers.append(await app.ask("POST", "/public/agents/greeter/runs", body, by=by))
    assert [answer.status_code for answer in answers] == [202] * 6
    assert len({answer.json()["run_id"] for answer in answers}) == 6
    await app.run_due_jobs()
    for by in (anon, {"authorization": f"Bearer {anon['apikey']}"}):
        read = await app.ask("GET", f"/public/runs/{answers[0].json()['run_id']}", by=by)
        assert (read.status_code, read.json()["run"]["caller_kind"]) == (200, "anonymous")


async def test_a_pause_is_told_alike_as_a_list_as_a_stream_and_over_a_websocket(app: App) -> None:
    await app.create_agent("asker", ASK, visibility="public", safety_acknowledged=True)
    anon = await app.anon_headers()
    body = (await app.ask("POST", "/public/agents/asker/runs", {"input": {}}, by=anon)).json()
    await app.run_due_jobs()
    path = f"/public/runs/{body['run_id']}"
    events = (await app.ask("GET", f"{path}/events.json", by=anon)).json()["events"]
    (pause,) = [event["payload"] for event in events if event["type"] == "run_paused"]
    flat = {name: value for name, value in pause.items() if name != "payload"}
    assert pause["payload"] == flat
    assert {"tool_name", "args", "approval_token"} < set(flat)
    await app.ask("POST", f"{path}/cancel", by=anon)
    answer = await app.ask("GET", f"{path}/events?token={body['stream_token']}", by={})
    stream_texts = [frame.split("data: ")[1] for frame in answer.text.split("\n\n") if "event: run_paused" in frame]
    again = (await app.ask("POST", f"{path}/stream-token", {}, by=anon)).json()["stream_token"]
    socket = await read_socket(app, f"/v1/{app.id}{path}/ws", f"token={again}")
    frames = [json.loads(message["text"]) for message in socket if "text" in message]
    (socket_pause,) = [frame["payload"] for frame in frames if frame["type"] == "run_paused"]
    assert [json.loads(text) for text in stream_texts] == [socket_pause] == [pause]


async def test_runs_conversations_and_people_are_deleted_by_admins_and_nobody_else(app: App) -> None:
    await app.create_agent("asker", ASK, visibility="public", safety_acknowledged=True)
    run_id = (await app.ask("POST", "/agents/asker/runs", {"input": {}, "thread_id": "t"})).json()["run_id"]
    await app.run_due_jobs()
    deletions = [
        (f"/agents/asker/runs/{run_id}", 204),
        ("/agents/asker/threads/t", 202),
        ("/agent-users/somebody", 202),
    ]
    for by in (await app.baobab.user_headers(app.id, "ada"), await app.anon_headers(), {}):
        assert {(await app.ask("DELETE", path, by=by)).status_code for path, _ in deletions} <= {401, 403, 404}
    under_way = await app.ask("DELETE", deletions[0][0])
    assert (under_way.status_code, under_way.json()["error"]) == (409, "run_under_way")
    await app.ask("POST", f"{deletions[0][0]}/cancel")
    assert [(await app.ask("DELETE", path)).status_code for path, _ in deletions] == [status for _, status in deletions]
    assert (await app.ask("GET", deletions[0][0])).status_code == 404


async def test_a_websocket_tells_every_event_and_closes(app: App) -> None:
    await app.create_agent("greeter", GREET, visibility="public", safety_acknowledged=True)
    anon = await app.anon_headers()
    body = (await app.ask("POST", "/public/agents/greeter/runs", {"input": {"name": "you"}}, by=anon)).json()
    path = f"/v1/{app.id}/public/runs/{body['run_id']}/ws"
    socket = await read_socket(app, path, f"token={body['stream_token']}")
    assert socket[0] == {"type": "websocket.accept"}
    frames = [json.loads(message["text"]) for message in socket[1:-1]]
    events = [frame for frame in frames if frame["type"] != "llm_delta"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "run_end"
    assert socket[-1] == {"type": "websocket.close", "code": 1000}
    refusal = await read_socket(app, path, "token=used")
    assert json.loads(refusal[1]["text"])["error"] == "stream_token_invalid"
    assert refusal[-1]["code"] == 1008


async def test_public_runs_are_limited_by_address_and_day_and_number(app: App) -> None:
    settings = {"visibility": "public", "safety_acknowledged": True, "dedupe_window_seconds": 0}
    anon = await app.anon_headers()
    await app.create_agent("few", GREET, **settings, max_runs_per_ip_per_hour=2)
    answers = [await app.ask("POST", "/public/agents/few/runs", {"input": {"n": n}}, by=anon) for n in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 429, 429]
    body = answers[-1].json()
    assert (body["error"], body["limit"], body["max"]) == ("rate_limit_exceeded", "max_runs_per_ip_per_hour", 2)
    assert body["reset_at"]
    assert int(answers[-1].headers["retry-after"]) > 0
    await app.create_agent("one", ASK, **settings, max_concurrent_runs=1)
    answers = await asyncio.gather(
        *(app.ask("POST", "/public/agents/one/runs", {"input": {"n": n}}, by=anon) for n in range(5))
    )
    assert sorted(answer.status_code for answer in answers) == [202, 429, 429, 429, 429]
    await app.create_agent("poor", GREET, **settings, daily_budget_usd=0)
    refusal = await app.ask("POST", "/public/agents/poor/runs", {"input": {}}, by=anon)
    assert (refusal.status_code, refusal.json()["limit"]) == (429, "daily_budget_usd")


async def read_socket(app: App, path: str, query: str) -> list[dict[str, Any]]:
    """Everything that a WebSocket is sent."""
    messages: list[dict[str, Any]] = []
    connect_event = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if connect_event.is_set():
            await asyncio.Event().wait()
        connect_event.set()
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    headers = [(b"host", ADDRESS.removeprefix("http://").encode())]
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
    }
    server: Any = app.baobab.client._transport
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await server.app(scope, receive, send)
    return messages


async def test_runs_are_listed_by_pages_and_by_what_is_asked_for(app: App) -> None:
    await app.create_agent("greeter", GREET, visibility="authenticated", dedupe_window_seconds=0)
    for thread in ("a", "b", "a"):
        await app.ask("POST", "/agents/greeter/runs", {"input": {"name": "Ada"}, "thread_id": thread})
    await app.run_due_jobs()
    ids = [run["id"] for run in (await app.ask("GET", "/agents/greeter/runs")).json()["runs"]]
    page = (await app.ask("GET", "/agents/greeter/runs?limit=2")).json()
    rest = (await app.ask("GET", f"/agents/greeter/runs?limit=2&cursor={page['next_cursor']}")).json()
    assert "next_cursor" not in rest
    assert [run["id"] for run in page["runs"] + rest["runs"]] == ids
    assert len((await app.ask("GET", "/agents/greeter/runs?thread_id=a&status=completed")).json()["runs"]) == 2
    assert (await app.ask("GET", f"/agents/greeter/runs?parent_run_id={ids[0]}")).json()["runs"] == []
    assert (await app.ask("GET", "/agents/greeter/runs?cursor=x")).status_code == 400


async def test_the_runs_of_all_agents_are_listed_for_those_who_run_the_app(app: App) -> None:
    for name in ("one", "two"):
        await app.create_agent(name, GREET, visibility="authenticated", dedupe_window_seconds=0)
        await app.ask("POST", f"/agents/{name}/runs", {"input": {"name": "Ada"}})
    await app.run_due_jobs()
    assert [run["agent"] for run in (await app.ask("GET", "/agents/_/runs")).json()["runs"]] == ["two", "one"]
    user = await app.baobab.user_headers(app.id, "ada")
    refusal = await app.baobab.client.get(f"/v1/{app.id}/agents/_/runs", headers=user)
    assert refusal.status_code == 403


async def test_a_run_is_read_with_the_graph_that_it_runs(app: App) -> None:
    await app.create_agent("greeter", GREET)
    run_id = (await app.ask("POST", "/agents/greeter/runs", {"input": {"name": "Ada"}})).json()["run_id"]
    await app.run_due_jobs()
    await app.ask("PATCH", "/agents/greeter", {"graph_spec": GREET | {"limits": {"max_steps": 9}}})
    path = f"/agents/greeter/runs/{run_id}"
    assert "graph_spec" not in (await app.ask("GET", path)).json()
    body = (await app.ask("GET", f"{path}?with_graph=true")).json()
    assert body["graph_spec"] == GREET
    events = (await app.ask("GET", f"{path}/events.json")).json()["events"]
    assert events[-1]["seq"] == body["run"]["last_seq"]
    (usage,) = [event["payload"] for event in events if event["type"] == "llm_token_usage"]
    assert usage["duration_ms"] >= 0
