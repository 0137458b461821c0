"""What runs call on tool servers, and who is asked before."""

import json
from typing import Any

import mcp_types as types
import pytest
from sqlalchemy import update

from baobab.runtime.agents.job_kinds import ADVANCE
from baobab.runtime.agents.tables import FROZEN, runs
from baobab.tools.agents.errors import InvalidGraph
from baobab.tools.core.errors import Forbidden
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.tool_server import SEARCH, SEND, FakeToolServer, start_tool_server
from tests.tools.agents.tool_servers.servers import (
    call_graph,
    get_failure,
    probe_server,
    register_server,
    tool_ref,
    tool_states,
    tools_section,
)


async def test_a_tool_that_only_reads_is_called_at_once_and_taints_the_run(
    agency: Agency, fake: FakeToolServer
) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "{{ input.query }}"}))
    run = await agency.run_agent("a", input={"query": "trees"})
    assert run["status"] == "completed", run
    assert run["output"] == {"text": "search done", "structured": {"got": {"query": "trees"}}, "parts": []}
    assert run["tainted"] is True
    (call,) = fake.calls
    assert (call.tool, call.arguments) == ("search", {"query": "trees"})
    assert call.meta["idempotencyKey"] == f"{run['id']}:1"


async def test_any_other_tool_waits_for_a_person_and_is_called_once(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "send", {"to": "Ada", "text": "Hello"}))
    run = await agency.run_agent("a")
    assert (run["status"], fake.calls) == ("paused", [])
    payload = (await agency.list_events("a", run["id"], "run_paused"))[0]["payload"]
    assert (payload["tool_source"], payload["tool_name"]) == ("mcp", "send")
    assert payload["args"] == {"to": "Ada", "text": "Hello"}
    result = await agency.harness.call("approvals_get", agency.owner, approval_id=payload["approval_id"])
    assert result["preview"] == f"It calls `send` of the tool server `docs` at {fake.mcp}."
    run = await agency.decide("a", run["id"])
    assert run["status"] == "completed", run
    (call,) = fake.calls
    assert call.arguments == {"to": "Ada", "text": "Hello"}
    assert call.meta["idempotencyKey"] == payload["approval_id"]


async def test_a_person_can_change_the_arguments_and_neither_the_tool_nor_the_server(
    agency: Agency, fake: FakeToolServer
) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "send", {"to": "Ada", "text": "Hello"}))
    run = await agency.run_agent("a")
    edited_arguments = {"to": "Bo", "tool": "search", "server_id": "another", "app_id": "app_000000000002"}
    run = await agency.decide("a", run["id"], arguments=edited_arguments)
    assert run["status"] == "completed", run
    assert [(call.tool, call.arguments) for call in fake.calls] == [("send", edited_arguments)]


@pytest.mark.parametrize("accepted_before", ["the decision", "the execution of an edited call", "neither"])
async def test_an_approval_is_of_the_tool_as_it_was_then(
    agency: Agency, fake: FakeToolServer, accepted_before: str
) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "send", {"to": "Ada"}))
    run = await agency.run_agent("a")
    payload = (await agency.list_events("a", run["id"], "run_paused"))[0]["payload"]
    if accepted_before != "neither":
        fake.redescribe(SEND, description="Send a letter to everybody.")
        assert tool_states(await probe_server(agency, server)) == {"search": "accepted", "send": "changed"}
        await probe_server(agency, server, accept=True)
        result = await agency.harness.call("approvals_get", agency.owner, approval_id=payload["approval_id"])
        assert "changed since" in str(result["preview"])
    edits: dict[str, Any] = {"arguments": {"to": "Bo"}} if "edited" in accepted_before else {}
    # Whoever approves is told that it would fail, and here goes on all the same.
    run = await agency.decide("a", run["id"], even_if_failing=accepted_before != "neither", **edits)
    if accepted_before == "neither":
        assert (run["status"], len(fake.calls)) == ("completed", 1)
        return
    assert (run["status"], run["error"]["type"], fake.calls) == ("failed", "tool_failed", [])
    (end_event,) = await agency.list_events("a", run["id"], "tool_call_end")
    assert end_event["payload"]["error"]["details"]["code"] == "tool_changed"
    assert "changed since this call was proposed" in run["error"]["message"]
    # Proposed anew it is of the tool as it is now.
    run = await agency.run_agent("a")
    run = await agency.decide("a", run["id"])
    assert (run["status"], len(fake.calls)) == ("completed", 1)


async def test_a_call_that_was_made_is_not_proposed_anew_when_its_tool_changes(
    agency: Agency, fake: FakeToolServer
) -> None:
    server = await register_server(agency, fake.mcp)
    send = tool_ref(server, "send")
    prompt = '/call send {"to": "Ada"}\n/call send {"to": "Bo"}\n/say Done.'
    think = {"type": "llm", "input_template": prompt, "output_key": "answer", "tools": [send]}
    end = {"type": "end", "output_template": "{{ state.answer }}"}
    await agency.create_agent(
        "a", build_graph({"think": think, "done": end}, ("think", "done"), tools=tools_section(server, "send"))
    )
    run = await agency.run_agent("a")
    run = await agency.decide("a", run["id"], index=0)
    assert (run["status"], len(fake.calls)) == ("paused", 1)
    fake.redescribe(SEND, description="Send a letter to everybody.")
    await probe_server(agency, server)
    await probe_server(agency, server, accept=True)
    run = await agency.decide("a", run["id"], index=1, even_if_failing=True)
    assert (run["status"], len(fake.calls)) == ("completed", 1), run
    assert len(await agency.list_events("a", run["id"], "run_paused")) == 2


async def test_a_call_that_was_made_is_told_as_made_though_its_tool_is_gone(
    agency: Agency, fake: FakeToolServer
) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "send", {"to": "Ada"}))
    run = await agency.run_agent("a")
    services = agency.harness.services

    async def held_by(job_id: str | None) -> None:
        async with services.database.writing() as connection:
            await connection.execute(update(runs).where(runs.c.id == run["id"]).values(job_id=job_id))

    await held_by(FROZEN)
    assert (await agency.decide("a", run["id"]))["status"] == "paused"
    await agency.harness.call("mcp_servers_delete", agency.owner, app_id=agency.app_id, id=server["id"])
    await held_by(None)
    async with services.database.writing_unit() as unit:
        await services.jobs.enqueue(unit, ADVANCE, {"run_id": run["id"]})
    run = await agency.wait_for_run("a", run["id"])
    assert (run["status"], len(fake.calls)) == ("completed", 1), run


async def test_a_refused_call_is_not_made(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "send", {}))
    run = await agency.run_agent("a")
    run = await agency.decide("a", run["id"], approves=False)
    assert (run["status"], run["error"]["type"], fake.calls) == ("failed", "approval_denied", [])


async def test_a_model_is_told_of_the_tools_and_calls_them(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    search, send = tool_ref(server, "search"), tool_ref(server, "send")
    prompt = '/call search {"query": "a"}\n/then send {"to": "$1.text"}\n/say Done.'
    think = {"type": "llm", "input_template": prompt, "output_key": "answer", "tools": [search, send]}
    end = {"type": "end", "output_template": "{{ state.answer }}"}
    spec = build_graph({"think": think, "done": end}, ("think", "done"), tools=tools_section(server, "search", "send"))
    await agency.create_agent("a", spec)
    run = await agency.run_agent("a")
    assert run["status"] == "paused", run
    run = await agency.decide("a", run["id"])
    assert run["status"] == "completed", run
    assert run["output"].endswith("Done.")
    assert [call.arguments for call in fake.calls] == [{"query": "a"}, {"to": "search done"}]


async def test_a_server_is_named_in_graphs_and_events_and_tells_tools_of_one_name_apart(
    agency: Agency, fake: FakeToolServer
) -> None:
    await register_server(agency, fake.mcp)
    async with start_tool_server() as other:
        await register_server(agency, other.mcp, name="other docs")
        tools = [{"source": "mcp", "server_id": name, "name": "search"} for name in ("docs", "other docs")]
        tools.append({"source": "mcp", "server_id": "docs", "name": "send"})
        prompt = '/call docs_search {"query": "a"}\n/call other_docs_search {"query": "b"}\n/then send {"to": "Ada"}'
        think = {"type": "llm", "input_template": prompt, "output_key": "answer", "tools": tools}
        server_refs = [
            {"server_id": "docs", "tools": ["search", "send"]},
            {"server_id": "other docs", "tools": ["search"]},
        ]
        spec = build_graph(
            {"think": think, "done": {"type": "end"}}, ("think", "done"), tools={"mcp_servers": server_refs}
        )
        await agency.create_agent("a", spec)
        run = await agency.run_agent("a")
        assert run["status"] == "paused", run
        assert [[call.arguments for call in each.calls] for each in (fake, other)] == [
            [{"query": "a"}],
            [{"query": "b"}],
        ]
        events = await agency.list_events("a", run["id"])
        servers = {(event["type"], event["payload"]["server"]) for event in events if "server" in event["payload"]}
        calls = {(type_, name) for type_ in ("tool_call_start", "tool_call_end") for name in ("docs", "other docs")}
        assert servers == {*calls, ("run_paused", "docs")}
        run = await agency.decide("a", run["id"])
        assert (run["status"], len(fake.calls)) == ("completed", 2), run


@pytest.mark.parametrize(
    ("text", "structured_content"),
    [
        ('{"found": [1, 2]}', {"found": [1, 2]}),
        (' [{"id": 7}]', [{"id": 7}]),
        ("7", None),
        ("{no json}", None),
        ("[" * 50 + "]" * 50, None),
        (json.dumps({"long": "x" * 70_000}), None),
    ],
    ids=["object", "list", "number", "words", "deep", "long"],
)
async def test_an_object_or_list_that_comes_as_text_alone_is_read(
    agency: Agency, fake: FakeToolServer, text: str, structured_content: Any
) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    fake.answer = types.CallToolResult(content=[types.TextContent(type="text", text=text)])
    run = await agency.run_agent("a")
    assert run["output"] == {"text": text, "structured": structured_content, "parts": []}, run["error"]


async def test_in_a_run_that_has_read_outside_text_calls_that_only_read_ask_too(
    agency: Agency, fake: FakeToolServer
) -> None:
    server = await register_server(agency, fake.mcp)
    search = {"type": "tool", "tool_ref": tool_ref(server, "search")}
    one, two = {**search, "args_template": {"query": "1"}}, {**search, "args_template": {"query": "2"}}
    end = {"type": "end", "output_template": "ok"}
    spec = build_graph(
        {"one": one, "two": two, "done": end}, ("one", "two"), ("two", "done"), tools=tools_section(server, "search")
    )
    await agency.create_agent("a", spec)
    run = await agency.run_agent("a")
    assert (run["status"], [call.arguments for call in fake.calls]) == ("paused", [{"query": "1"}])
    await agency.create_agent("b", spec, taint_checks=False)
    assert (await agency.run_agent("b"))["status"] == "completed"


@pytest.mark.parametrize("narrowed_place", ["acl", "server", "ref"])
async def test_what_is_narrowed_anywhere_asks(agency: Agency, fake: FakeToolServer, narrowed_place: str) -> None:
    acl = {"search": {"mode": "read_write"}} if narrowed_place == "acl" else {}
    server = await register_server(agency, fake.mcp, tool_acl=acl)
    override = {"search": {"mode_override": "read_write"}} if narrowed_place == "server" else {}
    spec = call_graph(server, "search", {"query": "x"}, **override)
    if narrowed_place == "ref":
        spec["nodes"]["call"]["tool_ref"]["mode_override"] = "read_write"
    await agency.create_agent("a", spec)
    run = await agency.run_agent("a")
    assert (run["status"], fake.calls) == ("paused", [])


async def test_an_owner_cannot_make_a_tool_read_only_that_its_server_does_not(
    agency: Agency, fake: FakeToolServer
) -> None:
    server = await register_server(agency, fake.mcp, tool_acl={"send": {"mode": "read_only"}})
    assert server["tools"][1]["mode"] == "read_write"
    spec = call_graph(server, "send", {})
    spec["nodes"]["call"]["tool_ref"]["mode_override"] = "read_only"
    with pytest.raises(InvalidGraph, match="must not widen"):
        await agency.create_agent("a", spec)


@pytest.mark.parametrize(
    ("is_exposed", "override"), [(False, {}), (True, {}), (True, {"exposed_to_override": "developer_only"})]
)
async def test_users_of_the_app_cause_calls_only_where_the_owner_says_so(
    agency: Agency, fake: FakeToolServer, is_exposed: bool, override: dict[str, str]
) -> None:
    acl = {"search": {"exposed_to": "end_user"}} if is_exposed else {}
    server = await register_server(agency, fake.mcp, tool_acl=acl)
    spec = call_graph(server, "search", {"query": "x"}, **({"search": override} if override else {}))
    await agency.create_agent("a", spec, visibility="authenticated")
    run = await agency.run_agent("a", agency.end_user("ada"))
    is_allowed = is_exposed and not override
    assert run["status"] == ("completed" if is_allowed else "failed"), run
    assert len(fake.calls) == int(is_allowed)


async def test_a_users_call_that_waits_is_decided_by_those_who_run_the_app(
    agency: Agency, fake: FakeToolServer
) -> None:
    server = await register_server(agency, fake.mcp, tool_acl={"send": {"exposed_to": "end_user"}})
    await agency.create_agent("a", call_graph(server, "send", {"to": "Ada"}), visibility="authenticated")
    run = await agency.run_agent("a", agency.end_user("ada"))
    assert run["status"] == "paused", run
    run = await agency.decide("a", run["id"])
    assert (run["status"], [call.arguments for call in fake.calls]) == ("completed", [{"to": "Ada"}])


async def test_a_user_approves_what_the_graph_sends_to_a_server_and_nothing_else(
    agency: Agency, fake: FakeToolServer
) -> None:
    server, ada = (
        await register_server(agency, fake.mcp, tool_acl={"send": {"exposed_to": "end_user"}}),
        agency.end_user("ada"),
    )
    open_to_users = {"visibility": "authenticated", "approvers": "starter"}
    await agency.create_agent("a", call_graph(server, "send", {"to": "Ada"}), **open_to_users)
    run = await agency.run_agent("a", ada)
    with pytest.raises(Forbidden, match="Only admins can change"):
        await agency.decide("a", run["id"], by=ada, arguments={"to": "Bob"})
    assert fake.calls == []
    run = await agency.decide("a", run["id"], by=ada)
    assert (run["status"], [call.arguments for call in fake.calls]) == ("completed", [{"to": "Ada"}])


async def test_a_tool_that_says_it_failed_ends_the_run_with_its_words(agency: Agency, fake: FakeToolServer) -> None:
    fake.fails = True
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    failure = await get_failure(agency)
    assert (failure["code"], failure["message"]) == ("tool_failed", "It is full.")


async def test_the_words_of_a_tool_that_failed_taint_the_run(agency: Agency, fake: FakeToolServer) -> None:
    fake.fails = True
    server = await register_server(agency, fake.mcp)
    search = tool_ref(server, "search")
    prompt = '/call search {"query": "1"}\n/then search {"query": "2"}\n/say Done.'
    think = {"type": "llm", "input_template": prompt, "output_key": "answer", "tools": [search]}
    end = {"type": "end", "output_template": "{{ state.answer }}"}
    await agency.create_agent(
        "a", build_graph({"think": think, "done": end}, ("think", "done"), tools=tools_section(server, "search"))
    )
    run = await agency.run_agent("a")
    assert (run["status"], run["tainted"], len(fake.calls)) == ("paused", True, 1), run
    assert (await agency.list_events("a", run["id"], "tool_call_end"))[0]["payload"]["tainted"] is True


async def test_parts_that_are_no_text_are_told_without_their_bytes(agency: Agency, fake: FakeToolServer) -> None:
    picture = types.ImageContent(type="image", data="aGVsbG8=", mime_type="image/png")
    fake.answer = types.CallToolResult(content=[picture])
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    run = await agency.run_agent("a")
    assert run["output"]["parts"] == [{"type": "image", "mime_type": "image/png"}]


async def test_results_are_not_held_against_a_schema_of_the_servers(agency: Agency, fake: FakeToolServer) -> None:
    """Its patterns would run here, and some never end."""
    fake.redescribe(SEARCH, output_schema={"type": "object", "properties": {"x": {"pattern": "^(a+)+$"}}})
    fake.answer = types.CallToolResult(content=[], structured_content={"x": "a" * 40 + "!"})
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    assert (await agency.run_agent("a"))["output"]["structured"] == {"x": "a" * 40 + "!"}


async def test_a_removed_servers_tools_are_called_no_more(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    await agency.harness.call("mcp_servers_delete", agency.owner, app_id=agency.app_id, id=server["id"])
    assert (await get_failure(agency))["code"] == "tool_server_not_found"
    assert not fake.calls
