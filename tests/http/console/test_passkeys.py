"""People sign in to the console with passkeys, which they add and remove there."""

import json
import re
from html import unescape
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from baobab.tools.console.sessions import RECENT, create_link
from baobab.tools.console.tables import console_sessions
from tests.conftest import Baobab
from tests.http.console.test_console import find_csrf
from tests.http.console.test_runs import Runner
from tests.soft_authenticator import SoftAuthenticator

ADDRESS = "http://localhost:8000"
ORIGIN = {"origin": ADDRESS, "host": "localhost:8000"}

pytestmark = pytest.mark.own_installation


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "enterprise", "BAOBAB_BASE_URL": ADDRESS}


@pytest.fixture
async def visitor(baobab: Baobab) -> Runner:
    """The first account, signed in as a person."""
    services = baobab.application.services
    me = await baobab.client.get("/platform/me", headers=baobab.owner)
    link = await create_link(services, me.json()["user"]["id"])
    signed_in = await baobab.client.post("/console/sign-in", data={"link": link}, headers=ORIGIN)
    assert signed_in.status_code == 303, signed_in.text
    return Runner(baobab, "", read_cookie(signed_in) | ORIGIN)


def read_cookie(answer: httpx.Response) -> dict[str, str]:
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def read_ceremony(page: str) -> tuple[Any, str]:
    options = json.loads(unescape(re.findall(r'data-options="([^"]+)"', page)[0]))
    return options, re.findall(r'name="state" value="([^"]+)"', page)[0]


async def add_passkey(visitor: Runner, authenticator: SoftAuthenticator) -> httpx.Response:
    page = await visitor.open("/console/sessions")
    options, state = read_ceremony(page.text)
    credential = json.dumps(authenticator.create(options))
    fields = {"csrf": find_csrf(page), "state": state, "credential": credential, "name": "My phone"}
    return await visitor.baobab.client.post("/console/sessions/passkeys", data=fields, headers=visitor.browser)


async def test_a_person_signs_in_with_a_passkey_once_for_each_answer(visitor: Runner) -> None:
    client, phone = visitor.baobab.client, SoftAuthenticator(ADDRESS)
    assert "data-passkey" not in (await client.get("/console/sign-in")).text
    assert (await add_passkey(visitor, phone)).status_code == 303
    options, state = read_ceremony((await client.get("/console/sign-in")).text)
    answer = {"state": state, "credential": json.dumps(phone.get(options))}
    signed_in = await client.post("/console/sign-in", data=answer, headers=ORIGIN)
    assert signed_in.status_code == 303, signed_in.text
    inbox = await client.get("/console", headers=read_cookie(signed_in) | ORIGIN)
    assert inbox.status_code == 200
    again = await client.post("/console/sign-in", data=answer, headers=ORIGIN)
    assert again.status_code == 400
    assert "passkey was not accepted" in again.text


async def test_a_passkey_that_was_removed_signs_nobody_in(visitor: Runner) -> None:
    client, phone, tablet = visitor.baobab.client, SoftAuthenticator(ADDRESS), SoftAuthenticator(ADDRESS)
    for each in (phone, tablet):
        assert (await add_passkey(visitor, each)).status_code == 303
    page = await visitor.open("/console/sessions")
    paths = re.findall(r'action="(/console/sessions/passkeys/[^"]+/remove)"', page.text)
    assert len(paths) == 2
    options, state = read_ceremony((await client.get("/console/sign-in")).text)
    for path in paths:
        response = await client.post(path, data={"csrf": find_csrf(page)}, headers=visitor.browser)
        assert response.status_code == 303
    answer = {"state": state, "credential": json.dumps(phone.get(options))}
    refusal = await client.post("/console/sign-in", data=answer, headers=ORIGIN)
    assert refusal.status_code == 400


async def test_passkeys_are_changed_only_soon_after_a_sign_in(visitor: Runner) -> None:
    client, services = visitor.baobab.client, visitor.baobab.application.services
    assert (await add_passkey(visitor, SoftAuthenticator(ADDRESS))).status_code == 303
    page = await visitor.open("/console/sessions")
    options, state = read_ceremony(page.text)
    remove = re.findall(r'action="(/console/sessions/passkeys/[^"]+/remove)"', page.text)[0]
    async with services.database.writing(lock=None) as connection:
        await connection.execute(update(console_sessions).values(created_at=services.clock.now() - RECENT))
    old = await visitor.open("/console/sessions")
    assert "/console/sign-in?back=/sessions" in old.text
    assert "data-passkey" not in old.text
    assert remove not in old.text
    # What an old page still offers is refused, too.
    credential = json.dumps(SoftAuthenticator(ADDRESS).create(options))
    fields = {"csrf": find_csrf(page), "state": state, "credential": credential, "name": "Mine now"}
    for path in ("/console/sessions/passkeys", remove):
        refusal = await client.post(path, data=fields, headers=visitor.browser)
        assert refusal.status_code == 403
        assert "sign-in is too old" in refusal.text


async def test_answers_of_another_page_another_ceremony_or_nobody_are_refused(visitor: Runner) -> None:
    client, phone, evil = visitor.baobab.client, SoftAuthenticator(ADDRESS), SoftAuthenticator("https://evil.example")
    assert (await add_passkey(visitor, phone)).status_code == 303
    assert (await add_passkey(visitor, evil)).status_code == 400
    page = await visitor.open("/console/sessions")
    _, other_state = read_ceremony(page.text)
    options, state = read_ceremony((await client.get("/console/sign-in")).text)
    good = phone.get(options)
    tampered_credential = good | {"response": good["response"] | {"signature": "AAAA"}}
    for fields in (
        {"state": other_state, "credential": json.dumps(good)},
        {"state": state, "credential": json.dumps(tampered_credential)},
        {"state": state, "credential": "{}"},
        {"state": state, "credential": "[]"},
        {"state": state, "credential": "[" * 4000},
        {"state": "x", "credential": json.dumps(good)},
        {"state": state},
    ):
        refusal = await client.post("/console/sign-in", data=fields, headers=ORIGIN)
        assert refusal.status_code == 400, (fields, refusal.text)
