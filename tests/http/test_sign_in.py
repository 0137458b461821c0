"""Sign-in over REST: paths, bodies and statuses of the contract."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from baobab.http import open_streams
from tests.conftest import Baobab
from tests.http.live_server import serve_installation
from tests.jobs import run_due_jobs

PASSWORD = "correct Horse 7!"
ADA = {"email": "ada@example.com", "password": PASSWORD}


@pytest.fixture
async def app(baobab: Baobab) -> str:
    return await baobab.create_app()


async def post(baobab: Baobab, app: str, path: str, headers: Any = None, **body: Any) -> Any:
    return await baobab.client.post(f"/auth/{app}/{path}", json=body, headers=headers)


async def read_code(baobab: Baobab, app: str) -> str:
    await run_due_jobs(baobab.application)
    mails = (await baobab.client.get(f"/v1/{app}/auth/outbox", headers=baobab.owner)).json()["mails"]
    match = re.search(r"^    (\d{6})$", mails[0]["text"], re.MULTILINE)
    assert match
    return match[1]


async def test_a_user_signs_up_verifies_logs_in_and_is_known_to_the_store(baobab: Baobab, app: str) -> None:
    response = await post(baobab, app, "signup", **ADA, display_name="Ada")
    assert response.status_code == 201, response.text
    user = response.json()["user"]
    assert response.json()["message"] == "Verification email sent"
    assert user == {"id": user["id"], "email": ADA["email"], "email_verified": False, "display_name": "Ada"}
    verified_response = await post(baobab, app, "verify-email", email=ADA["email"], code=await read_code(baobab, app))
    assert verified_response.status_code == 200, verified_response.text
    signed_in = (await post(baobab, app, "login", **ADA)).json()
    assert signed_in["user"] == {**user, "email_verified": True, "avatar_url": None}

    headers = {"authorization": f"Bearer {signed_in['access_token']}"}
    me = (await baobab.client.get(f"/auth/{app}/me", headers=headers)).json()
    assert (me["id"], me["provider"]) == (user["id"], "email")
    rule = {"read": "owner", "write": "owner"}
    await baobab.client.put(f"/v1/{app}/kv/_expose/user:%7Buser.id%7D:**", json=rule, headers=baobab.owner)
    key = f"/v1/{app}/kv/user:{user['id']}:cart"
    assert (await baobab.client.put(key, json={"value": 1}, headers=headers)).is_success
    assert (await baobab.client.get(key, headers=headers)).json() == {"value": 1}
    assert (await post(baobab, app, "logout", headers)).json() == {"message": "Logged out successfully"}
    assert (await baobab.client.get(key, headers=headers)).status_code == 401


async def test_an_access_token_is_verified_with_the_published_keys(baobab: Baobab, app: str) -> None:
    await post(baobab, app, "signup", **ADA)
    token = (await post(baobab, app, "login", **ADA)).json()["access_token"]
    response = await baobab.client.get(f"/auth/{app}/.well-known/jwks.json")
    assert response.headers["cache-control"] == "public, max-age=300"
    decoded_token = jwt.decode(token, KeySet.import_key_set(response.json()), algorithms=["RS256"])
    claims = decoded_token.claims
    assert decoded_token.header["kid"] == response.json()["keys"][0]["kid"]
    assert claims["exp"] - claims["iat"] == 3600
    expected_claims = {
        "iss": f"baobab:app:{app}",
        "app_id": app,
        "email": ADA["email"],
        "email_verified": False,
        "role": "user",
    }
    assert {name: claims[name] for name in expected_claims} == expected_claims


async def test_failures_are_worded_as_the_contract_says(baobab: Baobab, app: str) -> None:
    await post(baobab, app, "signup", **ADA)
    email = {"email": ADA["email"]}
    for path, body, status, text in (
        ("signup", ADA, 409, "User already exists"),
        ("signup", {**ADA, "password": "weak"}, 400, "Password does not meet requirements"),
        ("signup", email, 400, "Invalid request body"),
        ("signup", {**ADA, "password": "A" * 2**20}, 413, None),
        ("login", {**ADA, "password": "Battery staple 9?"}, 401, "Invalid credentials"),
        ("login", {**ADA, "admin": True}, 400, "Invalid request body"),
        ("magic-link/verify", {**email, "code": "nothing"}, 400, "Invalid sign-in code"),
        ("verify-email", {**email, "code": "nothing"}, 400, "Invalid verification code"),
        ("reset-password", {**email, "code": "no", "new_password": PASSWORD}, 400, "Invalid reset code"),
        ("refresh", {"refresh_token": "bb_ur_no"}, 401, "Invalid or expired refresh token"),
    ):
        answer = await post(baobab, app, path, **body)
        assert answer.status_code == status, (path, answer.text)
        assert text is None or answer.json()["error"] == text
    weak = (await post(baobab, app, "signup", **{**ADA, "password": "weak"})).json()
    assert all(isinstance(rule, str) for rule in weak["details"])
    nameless = await post(baobab, "app_000000000000", "login", **ADA)
    assert (nameless.status_code, nameless.json()["error"]) == (404, "App not found")


async def test_a_full_bucket_is_worded_as_everywhere_and_says_when_to_come_again(baobab: Baobab, app: str) -> None:
    answers = [await post(baobab, app, "forgot-password", email=ADA["email"]) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3].json()["error"]["code"] == "QUOTA_RATE_LIMIT"
    assert 0 < int(answers[3].headers["retry-after"]) <= 900


async def test_an_app_that_asks_for_sign_in_lets_its_users_in(baobab: Baobab, app: str) -> None:
    rule = {"read": "public", "write": "deny"}
    response = await baobab.client.put(f"/v1/{app}/kv/_expose/board:**", json=rule, headers=baobab.owner)
    assert response.is_success, response.text
    await baobab.client.put(f"/v1/{app}/kv/board:a", json={"value": 1}, headers=baobab.owner)
    assert (await baobab.client.get(f"/v1/{app}/kv/board:a")).status_code == 200
    secured_response = await baobab.client.post(f"/v1/{app}/secure", json={}, headers=baobab.owner)
    assert secured_response.json()["access_mode"] == "authenticated"
    assert (await baobab.client.get(f"/v1/{app}/kv/board:a")).status_code == 401
    assert (await post(baobab, app, "signup", **ADA)).status_code == 201
    token = (await post(baobab, app, "login", **ADA)).json()["access_token"]
    headers = {"authorization": f"Bearer {token}"}
    assert (await baobab.client.get(f"/v1/{app}/kv/board:a", headers=headers)).json() == {"value": 1}


@pytest.fixture
async def live_baobab(tmp_path: Path) -> AsyncIterator[Baobab]:
    async with serve_installation(tmp_path / "data", {"BAOBAB_PLAN": "enterprise"}) as served_baobab:
        yield served_baobab


async def test_signing_out_ends_the_open_streams_of_the_user_at_once_and_no_others(
    live_baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but the sign-out can end them.
    monkeypatch.setattr(open_streams, "RECHECK_SECONDS", 3600.0)
    monkeypatch.setattr("baobab.tools.agents.run_events._BEAT_SECONDS", 0.05)
    app = await live_baobab.create_app()
    ask = {"type": "tool", "tool_ref": {"source": "builtin", "name": "interrupt"}, "args_template": {"reason": "?"}}
    graph = {"spec_version": 1, "entry": "ask", "nodes": {"ask": ask, "done": {"type": "end", "output_template": 1}}}
    graph |= {"edges": [{"from": "ask", "to": "done"}], "tools": {"builtin": ["interrupt"]}}
    body = {"name": "asker", "graph_spec": graph, "visibility": "authenticated", "safety_acknowledged": True}
    response = await live_baobab.client.post(f"/v1/{app}/agents", json=body, headers=live_baobab.owner)
    assert response.status_code == 201, response.text
    readers, paths = [], []
    for name in ("ada", "bob"):
        person = {"email": f"{name}@example.com", "password": PASSWORD}
        await post(live_baobab, app, "signup", **person)
        token = (await post(live_baobab, app, "login", **person)).json()["access_token"]
        readers.append({"authorization": f"Bearer {token}"})
        started_response = await live_baobab.client.post(
            f"/v1/{app}/agents/asker/runs", json={"input": {"of": name}}, headers=readers[-1]
        )
        paths.append(f"/v1/{app}/agents/asker/runs/{started_response.json()['run_id']}/events")
    async with (
        asyncio.timeout(20),
        live_baobab.client.stream("GET", paths[0], headers=readers[0]) as of_ada,
        live_baobab.client.stream("GET", paths[1], headers=readers[1]) as of_bob,
    ):
        pieces, others = of_ada.aiter_text(), of_bob.aiter_text()
        assert "retry" in await anext(pieces)
        assert (await post(live_baobab, app, "logout", readers[0])).status_code == 200
        async for _ in pieces:
            pass
        for _ in range(3):
            await anext(others)
