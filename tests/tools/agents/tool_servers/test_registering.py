"""Tool servers: MCP servers of others, registered by an app's owner."""

import json
from typing import Any

import mcp_types as types
import pytest

from baobab.tools.agents.errors import InvalidGraph
from baobab.tools.core.auth.callers import AppKey
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, BaobabError, Forbidden, NotFound
from tests.tools.agents.conftest import Agency
from tests.tools.agents.tool_server import SEARCH, FakeToolServer
from tests.tools.agents.tool_servers.servers import TOKEN, call_graph, get_failure, probe_server, register_server


async def test_a_server_is_asked_for_its_tools_when_it_is_registered(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp, tool_acl={"search": {"exposed_to": "end_user"}})
    assert (server["status"], server["problem"], server["url"]) == ("healthy", None, fake.mcp)
    assert server["last_health"] == agency.harness.clock.now()
    search, send = server["tools"]
    assert (search["name"], search["description"]) == ("search", "Search the documents.")
    assert search["input_schema"] == SEARCH.input_schema
    assert (search["mode"], search["exposed_to"], search["state"]) == ("read_only", "end_user", "accepted")
    assert (send["mode"], send["exposed_to"], send["state"]) == ("read_write", "developer_only", "accepted")
    result = await agency.harness.call("mcp_servers_list", agency.owner, app_id=agency.app_id)
    assert [each["id"] for each in result["mcp_servers"]] == [server["id"]]


async def test_a_name_is_taken_once_and_free_again_after_removal(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    with pytest.raises(BaobabError) as refusal:
        await register_server(agency, fake.mcp)
    assert (refusal.value.status, refusal.value.code) == (409, "tool_server_exists")
    remove = {"app_id": agency.app_id, "id": server["id"]}
    await agency.harness.call("mcp_servers_delete", agency.owner, **remove)
    with pytest.raises(NotFound):
        await agency.harness.call("mcp_servers_delete", agency.owner, **remove)
    assert (await register_server(agency, fake.mcp))["id"] != server["id"]


async def test_a_bearer_token_is_sent_never_shown_and_sealed_at_rest(agency: Agency, fake: FakeToolServer) -> None:
    fake.bearer = TOKEN
    server = await register_server(agency, fake.mcp, auth={"type": "bearer", "token": TOKEN})
    assert (server["status"], server["auth"]) == ("healthy", {"type": "bearer", "token": "***"})
    assert all(request["authorization"] == f"Bearer {TOKEN}" for request in fake.headers)
    assert TOKEN not in json.dumps(server, default=str)
    assert TOKEN.encode() not in agency.harness.read_database()
    assert (await probe_server(agency, server))["ok"] is True


async def test_all_of_the_header_can_be_given_instead(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp, auth_header="Basic dGhlbTp0aGVpcnM=")
    assert server["auth"] == {"type": "header", "value": "***"}
    assert fake.headers[0]["authorization"] == "Basic dGhlbTp0aGVpcnM="
    with pytest.raises(BadRequest):
        await register_server(agency, fake.mcp, name="both", auth_header="x", auth={"type": "bearer", "token": "y"})


async def test_no_credential_of_ours_is_sent_on(agency: Agency, fake: FakeToolServer) -> None:
    await register_server(agency, fake.mcp)
    assert all("authorization" not in request and "cookie" not in request for request in fake.headers)


async def test_a_token_is_fetched_with_a_clients_credentials_and_held_until_it_ends(
    agency: Agency, fake: FakeToolServer
) -> None:
    fake.bearer = TOKEN
    auth = {"type": "oauth", "client_id": "baobab", "client_secret": fake.clients["baobab"]}
    auth |= {"token_url": f"{fake.url}/token", "scope": "read"}
    server = await register_server(agency, fake.mcp, auth=auth)
    assert server["auth"] == {**auth, "client_secret": "***"}
    token_request = {"grant_type": "client_credentials", "scope": "read", "resource": fake.mcp}
    assert fake.token_requests == [token_request]
    assert (await probe_server(agency, server))["ok"] is True
    assert len(fake.token_requests) == 1
    agency.harness.clock.advance(600)
    assert (await probe_server(agency, server))["ok"] is True
    assert len(fake.token_requests) == 2
    fake.bearer = "tok-withdrawn"
    assert (await probe_server(agency, server))["ok"] is True
    assert len(fake.token_requests) == 3
    assert auth["client_secret"].encode() not in agency.harness.read_database()


async def test_a_client_that_its_token_giver_refuses_is_told_so(agency: Agency, fake: FakeToolServer) -> None:
    auth = {"type": "oauth", "client_id": "baobab", "client_secret": "wrong", "token_url": f"{fake.url}/token"}
    server = await register_server(agency, fake.mcp, auth=auth)
    assert (server["status"], server["problem"]) == ("unhealthy", "The token URL answered 401.")
    assert not fake.headers


async def test_a_server_that_takes_no_token_is_given_two_at_most(agency: Agency, fake: FakeToolServer) -> None:
    fake.bearer = TOKEN
    auth = {"type": "oauth", "client_id": "baobab", "client_secret": fake.clients["baobab"]}
    server = await register_server(agency, fake.mcp, auth={**auth, "token_url": f"{fake.url}/token"})
    fake.behaviour = "401"
    assert (await probe_server(agency, server))["error"] == "The tool server answered 401."
    assert len(fake.token_requests) == 2


@pytest.mark.parametrize("fails", [True, False])
async def test_a_credential_that_the_server_repeats_is_not_told(
    agency: Agency, fake: FakeToolServer, fails: bool
) -> None:
    fake.bearer = TOKEN
    complaint = f"The token {TOKEN} may not do this."
    server = await register_server(agency, fake.mcp, auth={"type": "bearer", "token": TOKEN})
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    if fails:
        fake.answer = types.CallToolResult(content=[types.TextContent(type="text", text=complaint)], is_error=True)
    else:
        fake.complaint = complaint
    failure = await get_failure(agency)
    assert "The token *** may not do this." in failure["message"]
    assert TOKEN.encode() not in agency.harness.read_database()


async def test_older_servers_work_too(agency: Agency, fake: FakeToolServer) -> None:
    fake.behaviour = "legacy"
    server = await register_server(agency, fake.mcp)
    assert (server["status"], server["problem"]) == ("healthy", None)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    assert (await agency.run_agent("a"))["status"] == "completed"
    assert any("mcp-session-id" in request for request in fake.headers)


async def test_the_older_transport_works_too(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, f"{fake.url}/sse", transport="sse")
    assert (server["status"], server["problem"]) == ("healthy", None)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    assert (await agency.run_agent("a"))["status"] == "completed"


async def test_strangers_see_and_change_no_servers(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    stranger = await agency.harness.sign_up("stranger@example.com")
    member = await agency.harness.join(agency.owner.organisation_id, agency.owner, "member@example.com", "member")
    theirs = await agency.harness.create_app_row(stranger.organisation_id, "app_000000000002")
    use, app = agency.harness.call, {"app_id": agency.app_id}
    for who in (stranger, AppKey(theirs, "k"), agency.end_user("ada")):
        for tool, more in (
            ("mcp_servers_list", {}),
            ("mcp_servers_create", {"name": "x", "url": fake.mcp}),
            ("mcp_servers_probe", {"id": server["id"]}),
            ("mcp_servers_delete", {"id": server["id"]}),
        ):
            with pytest.raises(Forbidden):
                await use(tool, who, **app, **more)
    assert (await use("mcp_servers_list", member, **app))["mcp_servers"]
    with pytest.raises(Forbidden):
        await use("mcp_servers_probe", member, **app, id=server["id"])
    with pytest.raises(NotFound):
        await use("mcp_servers_probe", stranger, app_id=theirs, id=server["id"])
    graph_spec = call_graph(server, "search", {"query": "x"})
    with pytest.raises(InvalidGraph):
        await use("agents_create", stranger, app_id=theirs, name="a", graph_spec=graph_spec)


async def test_only_runs_call_its_tools(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    call = {"app_id": agency.app_id, "server_id": server["id"], "tool": "search", "arguments": {"query": "x"}}
    call["digest"] = server["tools"][0]["digest"]
    with pytest.raises(Forbidden):
        await agency.harness.registry.call("mcp_servers_call", call, agency.owner, RequestContext("test", "1"))
    assert not fake.calls


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://93.184.216.34/mcp", "auth": {"type": "bearer", "token": TOKEN}},
        {"url": "http://93.184.216.34/mcp", "auth_header": f"Bearer {TOKEN}"},
        {
            "url": "https://93.184.216.34/mcp",
            "auth": {
                "type": "oauth",
                "client_id": "us",
                "client_secret": "s3cret-of-ours",
                "token_url": "http://93.184.216.34/token",
            },
        },
    ],
    ids=["bearer", "header", "token url"],
)
async def test_no_credential_is_sent_in_clear_to_a_public_host(agency: Agency, fields: dict[str, Any]) -> None:
    error = await agency.catch_refusal("mcp_servers_create", agency.owner, app_id=agency.app_id, name="s", **fields)
    assert (error.status, error.code) == (400, "EGRESS_CREDENTIAL_IN_CLEAR")


async def test_a_result_that_repeats_the_credential_is_told_without_it(agency: Agency, fake: FakeToolServer) -> None:
    fake.bearer = TOKEN
    text = f"You sent {TOKEN}."
    server = await register_server(agency, fake.mcp, auth={"type": "bearer", "token": TOKEN})
    content = [types.TextContent(type="text", text=text)]
    fake.answer = types.CallToolResult(content=content, structured_content={"headers": [{TOKEN: text}]})
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    run = await agency.run_agent("a")
    assert run["status"] == "completed", run
    events = json.dumps(await agency.list_events("a", run["id"]), default=str)
    assert "You sent ***." in events
    assert TOKEN not in events
