"""The session of the server's own pages: one sign-in, kept in a cookie that no operation but its own routes reads."""

from typing import Any

import httpx
import pytest

from tests.conftest import Baobab

PAGE = {"x-baobab-page": "1"}
PASSWORD = "A long enough password 1!"


async def sign_up(baobab: Baobab) -> dict[str, str]:
    body = {"email": "ada@example.com", "password": PASSWORD, "name": "Ada"}
    response = await baobab.client.post("/platform/signup", json=body)
    assert response.status_code in (200, 201), response.text
    return {"email": body["email"], "password": PASSWORD}


def parse_cookie(answer: httpx.Response) -> dict[str, Any]:
    """The name, value and attributes of the cookie that an answer sets."""
    first, *rest = answer.headers["set-cookie"].split("; ")
    name, _, value = first.partition("=")
    attributes = dict(part.lower().partition("=")[::2] for part in rest)
    return {"name": name, "value": value, **attributes}


async def test_one_sign_in_lasts_for_many_pages_and_ends_with_signing_out(baobab: Baobab) -> None:
    client = baobab.client
    response = await client.post("/session", json=await sign_up(baobab), headers=PAGE)
    assert response.status_code == 200, response.text
    cookie = parse_cookie(response)
    assert "httponly" in cookie
    assert (cookie["samesite"], cookie["path"], cookie["max-age"]) == ("strict", "/session", str(7 * 24 * 3600))
    headers = {**PAGE, "cookie": f"{cookie['name']}={cookie['value']}"}
    renewed_response = await client.post("/session/token", headers=headers)
    bearer = {"authorization": f"Bearer {renewed_response.json()['token']}"}
    me = await client.get("/platform/me", headers=bearer)
    assert me.json()["user"]["email"] == "ada@example.com"
    # The cookie is no credential anywhere else.
    assert (await client.get("/platform/me", headers={"cookie": headers["cookie"]})).status_code == 401
    now = parse_cookie(renewed_response)
    headers = {**PAGE, "cookie": f"{now['name']}={now['value']}"}
    client.cookies.clear()
    ended_response = await client.request("DELETE", "/session", headers=headers)
    assert (ended_response.status_code, parse_cookie(ended_response)["max-age"]) == (200, "0")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**PAGE, "origin": "https://evil.example"},
        {**PAGE, "sec-fetch-site": "cross-site"},
        {**PAGE, "sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.own_installation
async def test_other_sites_cannot_use_the_session(baobab: Baobab, headers: dict[str, str]) -> None:
    sign_in_response = await baobab.client.post("/session", json=await sign_up(baobab), headers=PAGE)
    cookie = parse_cookie(sign_in_response)
    baobab.client.cookies.clear()
    all_headers = {**headers, "cookie": f"{cookie['name']}={cookie['value']}"}
    for method, path in (("POST", "/session/token"), ("DELETE", "/session")):
        assert (await baobab.client.request(method, path, headers=all_headers)).status_code == 403
    refusal = await baobab.client.post("/session", json={"email": "a@b.c", "password": "x"}, headers=headers)
    assert refusal.status_code == 403


async def test_a_pasted_key_lasts_twelve_hours_and_not_beyond_its_revocation(baobab: Baobab) -> None:
    body = (await baobab.client.post("/api-keys", json={"name": "mine"}, headers=baobab.owner)).json()
    sign_in_response = await baobab.client.post("/session", json={"key": body["key"]}, headers=PAGE)
    cookie = parse_cookie(sign_in_response)
    assert cookie["max-age"] == "43200"
    assert body["key"] not in cookie["value"]
    headers = {**PAGE, "cookie": f"{cookie['name']}={cookie['value']}"}
    token = (await baobab.client.post("/session/token", headers=headers)).json()["token"]
    bearer = {"authorization": f"Bearer {token}"}
    assert (await baobab.client.get("/platform/me", headers=bearer)).status_code == 200
    await baobab.client.delete(f"/api-keys/{body['key_id']}", headers=baobab.owner)
    assert (await baobab.client.get("/platform/me", headers=bearer)).status_code == 401


@pytest.mark.parametrize("body", ["", "[]", "{", "x" * 5000])
async def test_what_is_no_sign_in_is_refused(baobab: Baobab, body: str) -> None:
    answer = await baobab.client.post("/session", content=body, headers=PAGE)
    assert answer.status_code == 400
    assert "set-cookie" not in answer.headers
