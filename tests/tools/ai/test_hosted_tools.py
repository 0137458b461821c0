"""Tools that a provider runs, and groups of tools that the caller runs: what Codex and others send by default."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.people import create_key
from tests.tools.ai.conftest import HELLO, MINI, TEXT, Installation, open_installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = {"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object"}}
SPAWN = {"type": "function", "name": "spawn_agent", "strict": False, "parameters": {"type": "object"}}
AGENTS = {"type": "namespace", "name": "multi_agent_v1", "description": "Sub-agents.", "tools": [SPAWN]}
SEARCH = {"type": "web_search", "external_web_access": False}
# As Codex 0.169 sends it.
CODEX: dict[str, Any] = {
    "instructions": "You are Codex.",
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "say hi"}]}],
    "tools": [RUN, AGENTS, SEARCH],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a204b7",
    "client_metadata": {"session_id": "01a204b7"},
}


async def post_request(world: Installation, path: str = "responses", **body: Any) -> Any:
    return await world.client.post(f"/v1/{path}", json=body, headers=world.owner)


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "lab/plain", "claude-haiku-4-5", "baobab/echo"])
async def test_what_codex_sends_is_answered_and_says_what_was_left_out(world: Installation, model: str) -> None:
    world.add_model("plain")
    request_count = len(world.fake.requests)
    answer = await post_request(world, model=model, **CODEX)
    assert (answer.status_code, answer.headers.get("x-baobab-dropped")) == (200, "tools.web_search"), answer.text
    assert parse_events(answer.text)[-1]["type"] == "response.completed"
    for request in list(world.fake.requests)[request_count:]:
        sent_body = request.json
        assert "web_search" not in request.body.decode()
        if model == "openai/gpt-5-mini":
            assert sent_body["tools"] == [RUN, AGENTS]
        else:
            assert "client_metadata" not in sent_body
            names = [tool.get("function", tool)["name"] for tool in sent_body["tools"]]
            assert names == ["exec_command", "multi_agent_v1__spawn_agent"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_a_tool_in_a_group_names_both(world: Installation, stream: bool) -> None:
    model = world.add_model("tools")
    async with world.build_client(max_retries=0) as client:
        tools: Any = [AGENTS]
        if stream:
            async with client.responses.stream(model=model, input="Go.", tools=tools) as events:
                first = await events.get_final_response()
        else:
            first = await client.responses.create(model=model, input="Go.", tools=tools)  # type: ignore[assignment]
        (call,) = first.output
        assert call.type == "function_call"
        assert (call.namespace, call.name) == ("multi_agent_v1", "spawn_agent")
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "spawned"}
        turns: Any = [{"role": "user", "content": "Go."}, call.to_dict(), result]
        last = await client.responses.create(model=model, input=turns, tools=tools)
    assert last.output_text == TEXT
    tool_calls = world.fake.requests[-1].json["messages"][1]["tool_calls"]
    assert [one["function"]["name"] for one in tool_calls] == ["multi_agent_v1__spawn_agent"]


async def test_long_names_of_groups_stay_apart(world: Installation) -> None:
    tools = [{"type": "function", "name": "a" * 50 + end, "parameters": {"type": "object"}} for end in "xy"]
    group = {"type": "namespace", "name": "g" * 40, "description": "", "tools": tools}
    assert (await post_request(world, model=world.add_model("plain"), input="Hello!", tools=[group])).status_code == 200
    names = [tool["function"]["name"] for tool in world.fake.requests[-1].json["tools"]]
    assert len(set(names)) == 2
    assert max(map(len, names)) == 64


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": "Hello!", "tools": [SEARCH], "tool_choice": "auto"}),
        ("responses", {"input": "Hello!", "tools": [{"type": "web_search_preview_2025_03_11"}]}),
        (
            "messages",
            {"messages": HELLO, "max_tokens": 9, "tools": [{"type": "web_search_20250305", "name": "search"}]},
        ),
    ],
)
async def test_where_a_search_was_the_only_tool_none_is_left(
    world: Installation, path: str, body: dict[str, Any]
) -> None:
    answer = await post_request(world, path, model=world.add_model("plain"), **body)
    assert answer.status_code == 200
    assert answer.headers["x-baobab-dropped"] == f"tools.{body['tools'][0]['type']}"
    assert not {"tools", "tool_choice"} & world.fake.requests[-1].json.keys()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": "Hello!", "tools": [RUN, SEARCH], "tool_choice": {"type": "web_search"}}),
        (
            "messages",
            {
                "messages": HELLO,
                "max_tokens": 9,
                "tools": [{"name": "run", "input_schema": {}}, {"type": "web_search_20250305", "name": "search"}],
                "tool_choice": {"type": "tool", "name": "search"},
            },
        ),
    ],
)
async def test_a_search_that_must_be_made_is_refused(world: Installation, path: str, body: dict[str, Any]) -> None:
    refusal = await post_request(world, path, model=world.add_model("plain"), **body)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "tools[1]")
    assert f"`{body['tools'][1]['type']}`" in refusal.json()["error"]["message"]


@pytest.mark.parametrize("setting", ["refuse", "allow"])
async def test_the_operator_says_what_becomes_of_searches(tmp_path: Path, setting: str) -> None:
    async with open_installation(tmp_path / "data", {"BAOBAB_AI_WEB_SEARCH": setting}) as world:
        answer = await post_request(world, model=MINI, **CODEX)
        if setting == "allow":
            assert world.fake.requests[-1].json["tools"] == [RUN, AGENTS, SEARCH]
            assert (answer.status_code, answer.headers.get("x-baobab-dropped")) == (200, None)
        else:
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[2]")
            assert "`web_search`" in answer.json()["error"]["message"]


async def test_the_official_client_is_told_which_tool_is_at_fault(world: Installation) -> None:
    by = (await create_key(world, scopes=["ai:gateway"]))["authorization"].removeprefix("Bearer ")
    async with world.build_client(api_key=by, max_retries=0) as client:
        tools: Any = [RUN, {"type": "code_interpreter", "container": {"type": "auto"}}]
        with pytest.raises(openai.BadRequestError, match=r"`tools\[1\]` is of the type `code_interpreter`") as refusal:
            await client.responses.create(model=MINI, input="Hello!", tools=tools)
    assert refusal.value.param == "tools[1]"
