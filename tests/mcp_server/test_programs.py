"""Programs that a person has let act as them: what they were given, how it is renewed, and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from baobab.storage.secrets import digest_token
from baobab.tools.core.auth.signing import PLATFORM
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.oauth.tables import oauth_refresh_tokens
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.mcp_server.mcp_requests import send_message
from tests.mcp_server.oauth_client import parse_query
from tests.mcp_server.test_oauth import OAuthSteps
from tests.people import create_key, create_person, get_first_organisation


async def obtain_tokens(steps: OAuthSteps) -> dict[str, Any]:
    await steps.register_client()
    response = await steps.exchange_code(await steps.obtain_code())
    assert response.status_code == 200, response.text
    tokens: dict[str, Any] = response.json()
    return tokens


async def refresh_tokens(steps: OAuthSteps, token: str) -> httpx.Response:
    form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": steps.client_id}
    return await steps.client.post("/oauth/token", data=form)


async def is_token_valid(steps: OAuthSteps, token: str) -> bool:
    answer = await steps.client.get("/platform/me", headers={"authorization": f"Bearer {token}"})
    return answer.status_code == 200


async def test_an_access_token_ends_after_its_hour(baobab: Baobab) -> None:
    steps = OAuthSteps(baobab, await create_person(baobab, "ada"))
    tokens = await obtain_tokens(steps)
    services = baobab.application.services
    async with services.database.writing_unit() as unit:
        past, mine = services.clock.now() - timedelta(seconds=1), digest_token(tokens["access_token"])
        await unit.execute(update(api_keys).where(api_keys.c.digest == mine).values(expires_at=past))
        await services.notices.publish(unit, "key", mine)
    assert not await is_token_valid(steps, tokens["access_token"])
    body = (await refresh_tokens(steps, tokens["refresh_token"])).json()
    assert await is_token_valid(steps, body["access_token"])


async def test_a_refresh_token_is_good_once_and_a_lost_answer_is_told_again(baobab: Baobab) -> None:
    steps = OAuthSteps(baobab, await create_person(baobab, "ada"))
    first = await obtain_tokens(steps)
    # At once and twice over: both windows get the same pair.
    answers = await asyncio.gather(*(refresh_tokens(steps, first["refresh_token"]) for _ in range(4)))
    pairs = [answer.json() for answer in answers]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert all(pair == pairs[0] for pair in pairs)
    assert pairs[0]["expires_in"] == 3600
    assert await is_token_valid(steps, pairs[0]["access_token"])
    assert not await is_token_valid(steps, first["access_token"])


async def test_a_refresh_token_used_again_later_ends_the_grant(baobab: Baobab) -> None:
    steps = OAuthSteps(baobab, await create_person(baobab, "ada"))
    first = await obtain_tokens(steps)
    second = (await refresh_tokens(steps, first["refresh_token"])).json()
    async with baobab.application.services.database.writing() as connection:
        earlier = baobab.application.services.clock.now() - timedelta(seconds=11)
        is_used = oauth_refresh_tokens.c.used_at.is_not(None)
        await connection.execute(update(oauth_refresh_tokens).where(is_used).values(used_at=earlier))
    response = await refresh_tokens(steps, first["refresh_token"])
    assert (response.status_code, response.json()["error"]) == (400, "invalid_grant")
    assert not await is_token_valid(steps, second["access_token"])
    assert (await refresh_tokens(steps, second["refresh_token"])).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
async def test_a_client_revokes_what_it_has(baobab: Baobab, which: str) -> None:
    steps = OAuthSteps(baobab, await create_person(baobab, "ada"))
    tokens = await obtain_tokens(steps)
    foreign = await steps.client.post("/oauth/revoke", data={"token": tokens[which], "client_id": "somebody-else"})
    assert (foreign.status_code, await is_token_valid(steps, tokens["access_token"])) == (200, True)
    for _ in range(2):
        response = await steps.client.post("/oauth/revoke", data={"token": tokens[which], "client_id": steps.client_id})
        assert response.status_code == 200
    assert not await is_token_valid(steps, tokens["access_token"])
    assert (await refresh_tokens(steps, tokens["refresh_token"])).json()["error"] == "invalid_grant"


async def test_a_person_sees_the_programs_that_have_access_and_takes_it_away(baobab: Baobab) -> None:
    ada, bob = await create_person(baobab, "ada"), await create_person(baobab, "bob")
    steps = OAuthSteps(baobab, ada)
    tokens = await obtain_tokens(steps)
    (program,) = (await steps.client.get("/oauth/programs", headers=ada.headers)).json()["programs"]
    assert (program["client_name"], program["redirect_host"]) == ("Steps", "127.0.0.1:3000")
    path = f"/oauth/programs/{program['id']}"
    assert (await steps.client.get("/oauth/programs", headers=bob.headers)).json()["programs"] == []
    assert (await steps.client.delete(path, headers=bob.headers)).status_code == 404
    assert await is_token_valid(steps, tokens["access_token"])
    assert (await steps.client.delete(path, headers=ada.headers)).status_code == 200
    assert not await is_token_valid(steps, tokens["access_token"])


async def test_a_key_of_ones_own_is_not_revoked_at_the_endpoint_for_clients(baobab: Baobab) -> None:
    mine = await create_key(baobab)
    token = mine["authorization"].removeprefix("Bearer ")
    assert (await baobab.client.post("/oauth/revoke", data={"token": token})).status_code == 200
    assert (await baobab.client.get("/platform/me", headers=mine)).status_code == 200


@dataclass
class ProgramScene:
    """A program that was given something narrow, by an admin of the first account's organisation."""

    baobab: Baobab
    clock: FixedClock
    steps: OAuthSteps
    app: str

    async def obtain_narrowed(self, **limits: Any) -> dict[str, Any]:
        organisation = await get_first_organisation(self.baobab)
        self.steps.decision |= {"organization_id": organisation, "approval": "none", **limits}
        return await obtain_tokens(self.steps)

    async def sign_in(self) -> dict[str, str]:
        """The person's headers, with a token of now."""
        who = self.steps.who
        claims = {"sub": who.id, "email": who.email, "org_id": who.organisation_id}
        return {
            "authorization": f"Bearer {await self.baobab.application.services.signers.mint(PLATFORM, claims, 3600)}"
        }

    async def fetch_status(self, tokens: dict[str, Any], method: str, path: str, body: Any = None) -> int:
        headers = {"authorization": f"Bearer {tokens['access_token']}"}
        return (await self.steps.client.request(method, path, json=body, headers=headers)).status_code


@pytest.fixture
async def program_scene(tmp_path: Path) -> AsyncIterator[ProgramScene]:
    clock = FixedClock()
    async with open_installation(tmp_path, clock=clock) as baobab:
        ada = await create_person(baobab, "ada", role="admin")
        yield ProgramScene(baobab, clock, OAuthSteps(baobab, ada), await baobab.create_app())


async def test_a_program_that_was_given_one_app_opens_no_other_and_nothing_beside_it(
    program_scene: ProgramScene,
) -> None:
    other = await program_scene.baobab.create_app()
    tokens = await program_scene.obtain_narrowed(only_app_id=program_scene.app)
    # What it holds is renewed, and stays as narrow.
    for _ in range(2):
        assert await program_scene.fetch_status(tokens, "PUT", f"/v1/{program_scene.app}/kv/a", {"value": 1}) == 204
        assert await program_scene.fetch_status(tokens, "GET", f"/v1/{program_scene.app}/config") == 200
        assert await program_scene.fetch_status(tokens, "PUT", f"/v1/{other}/kv/a", {"value": 1}) == 403
        assert await program_scene.fetch_status(tokens, "GET", f"/v1/{other}/config") == 403
        for method, path in (("GET", "/apps"), ("POST", "/init"), ("GET", "/api-keys"), ("POST", "/api-keys")):
            assert await program_scene.fetch_status(tokens, method, path, {"name": "more"}) == 403, path
        tokens = (await refresh_tokens(program_scene.steps, tokens["refresh_token"])).json()
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    tools = (await send_message(program_scene.baobab, "tools/list", by=headers)).result["tools"]
    assert "apps_list" not in [tool["name"] for tool in tools]
    put = next(tool for tool in tools if tool["name"] == "kv_put")
    assert "app_id" not in put["inputSchema"]["properties"]


async def test_a_program_that_was_given_families_of_tools_uses_no_others(program_scene: ProgramScene) -> None:
    tokens = await program_scene.obtain_narrowed(toolsets=["kv", "api_keys"])
    for _ in range(2):
        assert await program_scene.fetch_status(tokens, "PUT", f"/v1/{program_scene.app}/kv/a", {"value": 1}) == 204
        assert await program_scene.fetch_status(tokens, "GET", f"/v1/{program_scene.app}/config") == 403
        assert await program_scene.fetch_status(tokens, "GET", "/apps") == 403
        tokens = (await refresh_tokens(program_scene.steps, tokens["refresh_token"])).json()


async def test_the_access_of_a_program_ends_with_its_last_day_and_so_do_the_keys_that_it_made(
    program_scene: ProgramScene,
) -> None:
    today = program_scene.clock.now()
    midnight = datetime.combine(today.date() + timedelta(days=1), time(), UTC)
    tokens = await program_scene.obtain_narrowed(last_day=today.date().isoformat())
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    key = await create_key(program_scene.baobab, headers)
    program_scene.clock.advance((midnight - today).total_seconds() - 60)
    tokens = (await refresh_tokens(program_scene.steps, tokens["refresh_token"])).json()
    assert tokens["expires_in"] == 60
    path = f"/v1/{program_scene.app}/kv/a"
    assert await program_scene.fetch_status(tokens, "PUT", path, {"value": 1}) == 204
    assert (await program_scene.steps.client.get(path, headers=key)).status_code == 200
    program_scene.clock.advance(60)
    assert await program_scene.fetch_status(tokens, "GET", path) == 401
    assert (await program_scene.steps.client.get(path, headers=key)).status_code == 401
    refusal = await refresh_tokens(program_scene.steps, tokens["refresh_token"])
    assert (refusal.status_code, refusal.json()["error"]) == (400, "invalid_grant")
    response = await program_scene.steps.client.get("/oauth/programs", headers=await program_scene.sign_in())
    assert response.json()["programs"] == []


async def test_what_a_program_proposed_is_not_made_after_its_last_day(program_scene: ProgramScene) -> None:
    tokens = await program_scene.obtain_narrowed(
        last_day=program_scene.clock.now().date().isoformat(), approval="write"
    )
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    response = await program_scene.steps.client.put(f"/v1/{program_scene.app}/kv/a", json={"value": 1}, headers=headers)
    approval_id = response.json()["approval_id"]
    program_scene.clock.advance(23 * 3600)
    path, ada = f"/v1/approvals/{approval_id}", await program_scene.sign_in()
    assert (await program_scene.steps.client.get(path, headers=ada)).json()["preview"] == (
        "It would fail now: The key that proposed this call has ended."
    )
    assert (await program_scene.steps.client.post(f"{path}/approve", json={}, headers=ada)).status_code == 409
    anyway = {"even_if_failing": True}
    assert (await program_scene.steps.client.post(f"{path}/approve", json=anyway, headers=ada)).status_code == 200
    await jobs.run_due_jobs(program_scene.baobab.application)
    assert (await program_scene.steps.client.get(path, headers=ada)).json()["approval"]["status"] == "failed"


async def test_nobody_gives_an_app_of_others_unknown_tools_or_a_day_that_is_over(program_scene: ProgramScene) -> None:
    await program_scene.steps.register_client()
    sent_on = (await program_scene.steps.authorize()).headers["location"]
    body = {"request": parse_query(sent_on)["request"], "decision": "approve"}
    for wrong, status in (
        ({"only_app_id": program_scene.app}, 404),
        ({"only_app_id": "app_000000000000"}, 404),
        ({"toolsets": ["kv", "magic"]}, 400),
        ({"last_day": "2001-01-01"}, 400),
    ):
        # In their own organisation, to which the app does not belong.
        refusal = await program_scene.steps.client.post(
            "/oauth/decision", json=body | wrong, headers=program_scene.steps.who.headers
        )
        assert refusal.status_code == status, refusal.text


async def test_a_person_sees_what_a_program_may_and_when_it_last_did(program_scene: ProgramScene) -> None:
    tokens = await program_scene.obtain_narrowed(
        only_app_id=program_scene.app, toolsets=["kv"], read_only=True, last_day="2099-12-31"
    )
    assert await program_scene.fetch_status(tokens, "GET", f"/v1/{program_scene.app}/kv/a") == 404
    await program_scene.baobab.application.services.credentials.flush(
        program_scene.baobab.application.services.database
    )
    response = await program_scene.steps.client.get("/oauth/programs", headers=program_scene.steps.who.headers)
    (program,) = response.json()["programs"]
    assert {name: program[name] for name in ("only_app_id", "toolsets", "read_only", "approval", "ends_at")} == {
        "only_app_id": program_scene.app,
        "toolsets": ["kv"],
        "read_only": True,
        "approval": "none",
        "ends_at": "2100-01-01T00:00:00Z",
    }
    assert program["last_used_at"] is not None
    assert program["only_app_name"].startswith("app-")
    assert program["organization_name"]


async def test_a_person_whom_a_program_sent_wrongly_reads_a_page_and_a_program_reads_json(baobab: Baobab) -> None:
    wrong = {"client_id": "nobody<b>", "response_type": "code", "redirect_uri": "https://evil.example/"}
    response = await baobab.client.get("/oauth/authorize", params=wrong, headers={"accept": "text/html,*/*;q=0.8"})
    assert (response.status_code, response.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "This program cannot be connected" in response.text
    assert "<b>" not in response.text
    assert "location" not in response.headers
    refusal = await baobab.client.get("/oauth/authorize", params=wrong, headers={"accept": "application/json"})
    assert refusal.json()["error"] == "invalid_request"


async def test_what_a_person_reads_before_agreeing_names_the_server_and_no_word_of_ours(baobab: Baobab) -> None:
    texts = [(await baobab.client.get(f"/oauth/consent{path}")).text for path in ("", "/consent.js")]
    assert 'id="server"' in texts[0]
    assert "substrate" not in "".join(texts).lower()
