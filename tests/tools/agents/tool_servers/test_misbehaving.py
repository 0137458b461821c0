"""Tool servers that misbehave, and addresses that must not be reached."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from baobab.runtime.agents.remote.tool_server_client import ToolServerClient
from baobab.runtime.net.addresses import AddressRefused, UrlRefused
from baobab.runtime.net.egress import Egress
from baobab.tools.agents.errors import InvalidGraph
from tests.tools.agents.conftest import TIMEOUT_SECONDS, Agency
from tests.tools.agents.tool_server import FakeToolServer
from tests.tools.agents.tool_servers.servers import (
    LOOPBACK,
    call_graph,
    get_failure,
    probe_server,
    register_server,
    tool_states,
)

MISBEHAVING = {
    "500": ("tool_server_failed", "The tool server answered 500."),
    "403": ("tool_server_denied", "The tool server answered 403."),
    "404": ("tool_server_failed", "The tool server answered 404."),
    "silent": ("tool_server_timeout", "The tool server did not answer in time."),
    "huge": ("EGRESS_TOO_LARGE", "The answer of the service is larger than allowed."),
    "endless": ("EGRESS_TOO_LARGE", "The answer of the service is larger than allowed."),
    "malformed": ("tool_server_failed", "The tool server's answer was not valid MCP."),
    "away": ("EGRESS_URL_REFUSED", "The server redirects to another host."),
}


@pytest.mark.parametrize("behaviour", MISBEHAVING)
async def test_a_server_that_misbehaves_fails_its_call_and_nothing_else(
    agency: Agency, fake: FakeToolServer, behaviour: str
) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    fake.behaviour, remote = behaviour, agency.harness.services.of(ToolServerClient)
    if behaviour == "silent":
        remote.call_seconds = remote.list_seconds = 0.05
    code, message = MISBEHAVING[behaviour]
    failure = await get_failure(agency)
    assert (failure["code"], failure["message"]) == (code, message)
    assert (await probe_server(agency, server))["error"] == message
    assert "127.0.0.1" not in json.dumps(failure)
    fake.behaviour = ""
    remote.call_seconds = remote.list_seconds = 10.0
    assert (await agency.run_agent("a"))["status"] == "completed"


async def test_a_run_that_is_cancelled_waits_for_no_server(agency: Agency, fake: FakeToolServer) -> None:
    server = await register_server(agency, fake.mcp)
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    fake.behaviour, before = "silent", len(fake.headers)
    run_id = await agency.start_run("a")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(fake.headers) == before:
            await asyncio.sleep(0.001)
    cancel = {"app_id": agency.app_id, "name": "a", "id": run_id}
    await agency.harness.call("agents_runs_cancel", agency.owner, **cancel)
    assert (await agency.wait_for_run("a", run_id))["status"] == "cancelled"


async def test_what_is_no_mcp_is_registered_as_not_well_and_accepted_when_it_first_is(
    agency: Agency, fake: FakeToolServer
) -> None:
    fake.behaviour = "page"
    server = await register_server(agency, fake.mcp)
    assert (server["status"], server["tools"]) == ("unhealthy", [])
    with pytest.raises(InvalidGraph):
        await agency.create_agent("a", call_graph(server, "search", {}))
    fake.behaviour = ""
    assert tool_states(await probe_server(agency, server)) == {"search": "accepted", "send": "accepted"}


async def test_a_redirect_on_the_same_host_is_followed(agency: Agency, fake: FakeToolServer) -> None:
    fake.behaviour = "moved"
    assert (await register_server(agency, fake.mcp))["status"] == "healthy"


PRIVATE = ["http://10.0.0.1/mcp", "http://169.254.169.254/mcp", "http://[::1]/mcp", "http://[::ffff:10.0.0.1]/mcp"]


@pytest.mark.parametrize("url", [*PRIVATE, "http://2130706433/mcp", "http://0x7f.1/mcp"])
async def test_private_addresses_are_refused(agency: Agency, url: str) -> None:
    with pytest.raises(AddressRefused):
        await register_server(agency, url)
    result = await agency.harness.call("mcp_servers_list", agency.owner, app_id=agency.app_id)
    assert result == {"mcp_servers": []}


@pytest.mark.parametrize("url", ["ftp://example.com/", "http://user:pw@example.com/", "http://example.com:6379/"])
async def test_urls_that_are_no_plain_http_are_refused(agency: Agency, url: str) -> None:
    with pytest.raises(UrlRefused):
        await register_server(agency, url)


async def test_a_private_token_url_is_not_called(agency: Agency, fake: FakeToolServer) -> None:
    auth = {"type": "oauth", "client_id": "a", "client_secret": "b", "token_url": "http://10.0.0.1/token"}
    with pytest.raises(AddressRefused):
        await register_server(agency, fake.mcp, auth=auth)
    assert not fake.headers


async def test_a_name_that_leads_elsewhere_after_registration_is_not_followed_there(
    agency: Agency, fake: FakeToolServer
) -> None:
    leads = ["127.0.0.1"]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return leads

    services = agency.harness.services
    egress = Egress([LOOPBACK], resolver=resolve)
    services._own[ToolServerClient] = ToolServerClient(replace(services, http_client=egress))
    server = await register_server(agency, fake.mcp.replace("127.0.0.1", "tools.example"))
    assert server["status"] == "healthy"
    await agency.create_agent("a", call_graph(server, "search", {"query": "x"}))
    leads[:] = ["10.0.0.1"]
    # What is connected already stays where it is.
    await egress.close()
    assert (await get_failure(agency))["code"] == "EGRESS_ADDRESS_REFUSED"
    assert (await probe_server(agency, server))["ok"] is False
    await egress.close()
