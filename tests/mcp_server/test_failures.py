"""What fails is told as a failure to models, also where the contract of REST has it in an ordinary body."""

import pytest

from tests.conftest import Baobab
from tests.mcp_server.speaking import ERAS, refusal, use
from tests.ports import free_port


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_server_that_does_not_answer_its_probe_is_a_failure(baobab: Baobab, era: str) -> None:
    app_id = await baobab.app()
    given = {"app_id": app_id, "name": "docs", "url": f"http://127.0.0.1:{free_port()}/mcp"}
    made = await use(baobab, "call_tool", {"name": "mcp_servers_create", "arguments": given}, era=era)
    server = made["structuredContent"]["server"]
    probe = {"app_id": app_id, "id": server["id"]}
    told = refusal(await use(baobab, "call_tool", {"name": "mcp_servers_probe", "arguments": probe}, era=era))
    assert told["code"] == "tool_server_failed"
    assert told["message"] == server["problem"]
    over_rest = await baobab.client.post(f"/v1/{app_id}/mcp-servers/{server['id']}/probe", headers=baobab.owner)
    assert over_rest.status_code == 502
    assert over_rest.json() == {"ok": False, "error": told["message"], "remediation": told["remediation"]}
