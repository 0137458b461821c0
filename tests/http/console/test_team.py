"""The team and the account in the console: inviting, joining, roles, and what each role is shown."""

import re
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from baobab.tools.console.sessions import create_link
from tests.conftest import Baobab
from tests.http.console.test_console import OWN, find_csrf, sign_in
from tests.people import create_person, get_first_organisation

PASSWORD = "correct Horse 7!"


class Browser:
    """A browser with cookies of its own."""

    def __init__(self, baobab: Baobab) -> None:
        self.client = baobab.client
        self.headers = {**OWN, "origin": str(baobab.client.base_url).rstrip("/")}
        self.page: Any = None

    async def open(self, path: str) -> Any:
        self.client.cookies.clear()
        self.page = await self.client.get(path, headers=self.headers)
        return self.page

    async def send(self, path: str, **fields: str) -> httpx.Response:
        self.client.cookies.clear()
        csrf = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.page.text) if self.page is not None else None
        form = {**({"csrf": csrf[1]} if csrf else {}), **fields}
        answer = await self.client.post(path, data=form, headers=self.headers)
        if "set-cookie" in answer.headers:
            self.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
        if answer.status_code == 200:
            self.page = answer
        return answer


@pytest.fixture
async def admin(baobab: Baobab) -> Browser:
    browser = Browser(baobab)
    browser.headers |= await sign_in(baobab)
    await browser.open("/console/team")
    return browser


async def invite(baobab: Baobab, admin: Browser, email: str, role: str = "member", **more: str) -> str:
    """The path of the link that the page shows once."""
    organisation = await get_first_organisation(baobab)
    page = await admin.send("/console/team/invite", of=organisation, email=email, role=role, **more)
    assert page.status_code == 200, page.text
    [link] = re.findall(r"https?://\S+/console/join\?token=inv_\w+", page.text)
    parts = urlsplit(link)
    return f"{parts.path}?{parts.query}"


async def test_somebody_new_is_invited_by_a_link_and_joins_with_a_name_and_a_password(
    baobab: Baobab, admin: Browser
) -> None:
    path = await invite(baobab, admin, "theo@example.com", "approver")
    assert "sends no mail" in admin.page.text
    assert path.rpartition("=")[2] not in (await admin.open("/console/team")).text
    assert "theo@example.com" in admin.page.text
    theo = Browser(baobab)
    page = await theo.open(path)
    assert "as approver" in page.text
    weak = await theo.send("/console/join", token=path.rpartition("=")[2], name="Theo <b>", password="weak")
    assert weak.status_code == 400
    assert 'value="Theo &lt;b&gt;"' in weak.text
    answer = await theo.send("/console/join", token=path.rpartition("=")[2], name="Theo", password=PASSWORD)
    assert answer.status_code == 303, answer.text
    # One press: the account is there, and belongs to the team.
    assert answer.headers["location"] == "/console?joined=1"
    page = await theo.open("/console")
    assert "decides-only" in page.text
    for address in ("/console/apps", "/console/keys", "/console/jobs", "/console/team"):
        assert f'href="{address}"' not in page.text
        refusal = await theo.open(address)
        assert refusal.status_code == 403, address
        assert "Ask Owner" in refusal.text
    assert "Theo" in (await admin.open("/console/team")).text
    again = await theo.open(path)
    assert "accepted before" in again.text


async def test_an_invitation_says_plainly_when_it_is_not_yours_or_not_there(baobab: Baobab, admin: Browser) -> None:
    path = await invite(baobab, admin, "uma@example.com")
    page = await admin.open(path)
    assert "You are signed in as" in page.text
    page = await admin.open(path.replace("/join", "/invitation"))
    assert "Join</button>" not in page.text
    refusal = await admin.send("/console/invitation/accept", token=path.rpartition("=")[2])
    assert refusal.status_code == 403
    newer_path = await invite(baobab, admin, "uma@example.com")
    stranger = Browser(baobab)
    assert "withdrawn, or replaced" in (await stranger.open(path)).text
    assert "Create the account" in (await stranger.open(newer_path)).text


async def test_a_forgotten_password_says_how_without_a_mail_server(baobab: Baobab) -> None:
    browser = Browser(baobab)
    assert "/console/forgot-password" in (await browser.open("/console/sign-in")).text
    page = await browser.open("/console/forgot-password")
    assert "baobab password" in page.text
    page = await browser.open("/console/new-password?token=nonsense")
    answer = await browser.send("/console/new-password", token="nonsense", password=PASSWORD)
    assert answer.status_code == 400
    assert "used before, or has expired" in answer.text


async def test_a_new_account_is_made_where_that_is_allowed_and_changes_its_password(baobab: Baobab) -> None:
    browser = Browser(baobab)
    await browser.open("/console/sign-up")
    answer = await browser.send("/console/sign-up", name="Vera", email="vera@example.com", password=PASSWORD)
    assert answer.status_code == 303, answer.text
    await browser.open("/console/account")
    wrong = await browser.send("/console/account/password", password="Battery staple 9?", current_password="nope")
    assert "not this account" in wrong.text
    answer = await browser.send("/console/account/password", password="Battery staple 9?", current_password=PASSWORD)
    assert answer.headers["location"].endswith("/sign-in?done=password")
    assert (await browser.open("/console/account")).status_code == 303
    await browser.open("/console/sign-in")
    answer = await browser.send("/console/sign-in", email="vera@example.com", password="Battery staple 9?")
    await browser.open("/console/account")
    answer = await browser.send("/console/account/name", name="Vera K.")
    assert "Vera K." in (await browser.open("/console/account")).text
    answer = await browser.send("/console/account/delete", current_password="Battery staple 9?")
    assert answer.headers["location"].endswith("/sign-in?done=deleted")
    await browser.open("/console/sign-in")
    answer = await browser.send("/console/sign-in", email="vera@example.com", password="Battery staple 9?")
    assert answer.status_code == 401


async def test_roles_change_on_the_page_and_nobody_gives_one_above_their_own(baobab: Baobab, admin: Browser) -> None:
    organisation, app_id = await get_first_organisation(baobab), await baobab.create_app()
    person = await create_person(baobab, "walt", role="member")
    path = f"/console/team/members/{person.id}"
    answer = await admin.send(f"{path}/role", of=organisation, role="approver", **{f"app.{app_id}": "yes"})
    assert answer.status_code == 303, answer.text
    members = await baobab.client.get(f"/v1/organizations/{organisation}/members", headers=baobab.owner)
    [row] = [row for row in members.json()["members"] if row["account_id"] == person.id]
    assert (row["role"], row["app_ids"]) == ("approver", [app_id])
    as_admin = await create_person(baobab, "an-admin", role="admin")
    body = {"email": "x@example.com", "role": "owner"}
    path = f"/v1/organizations/{organisation}/invitations"
    assert (await baobab.client.post(path, json=body, headers=as_admin.headers)).status_code == 403
    answer = await admin.send(f"/console/team/members/{person.id}/remove", of=organisation)
    assert answer.status_code == 303
    assert find_csrf(admin.page)


async def test_whoever_has_an_account_joins_with_one_press_after_signing_in(baobab: Baobab, admin: Browser) -> None:
    person = await create_person(baobab, "wilma")
    path = await invite(baobab, admin, person.email)
    wilma = Browser(baobab)
    assert "Sign in to accept" in (await wilma.open(path)).text
    await wilma.send("/console/sign-in", link=await create_link(baobab.application.services, person.id))
    answer = await wilma.open(path)
    assert answer.status_code == 303, "there is nothing to press on the way to the button"
    page = await wilma.open(answer.headers["location"])
    assert page.text.count('<button class="go">Join</button>') == 1
    answer = await wilma.send("/console/invitation/accept", token=path.rpartition("=")[2])
    assert answer.headers["location"] == "/console?joined=1"


async def test_the_pages_of_the_organisation_are_in_the_side_bar_of_an_app_too(baobab: Baobab, admin: Browser) -> None:
    app_id = await baobab.create_app()
    page = await admin.open(f"/console/apps/{app_id}")
    [side_bar] = re.findall(r'<nav class="groups of-organisation".*?</nav>', page.text, re.DOTALL)
    for name in ("team", "keys", "jobs"):
        assert f'href="/console/{name}"' in side_bar


async def test_an_app_has_a_name_that_people_read_wherever_it_is_named(baobab: Baobab, admin: Browser) -> None:
    app_id = await baobab.create_app()
    await admin.open(f"/console/apps/{app_id}")
    await admin.send(f"/console/apps/{app_id}/name", display_name="Café „Lampe“")
    await baobab.client.post(
        "/api-keys", json={"name": "of app", "key_scope": "app", "target_app_id": app_id}, headers=baobab.owner
    )
    for path in (
        "/console/apps",
        f"/console/apps/{app_id}",
        f"/console/apps/{app_id}/runs",
        "/console/keys",
        "/console/team",
    ):
        assert "Café „Lampe“" in (await admin.open(path)).text, path
    page = (await baobab.client.get(f"/auth/{app_id}/page")).json()
    assert page["app_name"] == "Café „Lampe“"


async def test_many_people_are_found_by_words_of_their_name_or_address(baobab: Baobab, admin: Browser) -> None:
    for name in ("Anna Berg", "Anna Thal", *(f"person-{number}" for number in range(8))):
        await create_person(baobab, name, role="member")
    page = await admin.open("/console/team")
    assert 'name="search"' in page.text
    page = await admin.open("/console/team?search=berg+ANNA")
    assert "Anna Berg" in page.text
    assert "Anna Thal" not in page.text
    page = await admin.open("/console/team?search=nobody+at+all")
    assert "Show everybody" in page.text
