"""The first steps of a new owner: the names, a way in, a first app, a client, colleagues."""

import re

import pytest

from baobab.tools.accounts.first_account import first_account, set_password
from baobab.tools.console.sessions import create_link
from tests.conftest import Baobab
from tests.http.console.test_team import PASSWORD, Browser, invite
from tests.people import create_person, get_first_organisation


async def open_link(baobab: Baobab, account_id: str) -> tuple[Browser, str]:
    """A browser that has used a one-time link, and where it was led."""
    browser = Browser(baobab)
    link = await create_link(baobab.application.services, account_id)
    answer = await browser.send("/console/sign-in", link=link)
    assert answer.status_code == 303
    return browser, answer.headers["location"]


def list_done(page: str) -> list[str]:
    return re.findall(r'class="step done".*?<h2 id="([\w-]+)"', page, re.DOTALL)


@pytest.mark.own_installation
async def test_the_first_sign_in_leads_through_the_first_steps_until_there_is_an_app(baobab: Baobab) -> None:
    owner = await first_account(baobab.application.services)
    browser, path = await open_link(baobab, owner.account_id)
    assert path == "/console/welcome"
    page = await browser.open(path)
    assert list_done(page.text) == []
    answer = await browser.send(
        "/console/welcome/names", of=owner.organisation_id, name="Acme Lamps", own_name="Mira K."
    )
    page = await browser.open(answer.headers["location"])
    assert list_done(page.text) == ["names"]
    assert "<span>Acme Lamps</span></a>" in page.text
    answer = await browser.send("/console/apps/create", of=owner.organisation_id, name="Support desk")
    app = await browser.open(answer.headers["location"])
    assert "<h1>" in app.text
    assert "Support desk</span></h1>" in app.text
    assert "<code>support-desk</code>" in app.text
    await invite(baobab, browser, "theo@example.com")
    await baobab.client.get("/apps", headers=baobab.owner)
    await baobab.application.services.credentials.flush(baobab.application.services.database)
    assert list_done((await browser.open(path)).text) == ["names", "app", "client", "team"]
    await set_password(baobab.application.services, None, PASSWORD)
    browser, path = await open_link(baobab, owner.account_id)
    assert path == "/console"
    page = await browser.open("/console/welcome")
    assert list_done(page.text) == ["names", "way-in", "app", "client", "team"]


@pytest.mark.own_installation
async def test_a_name_that_no_address_can_have_comes_back_in_its_field(baobab: Baobab) -> None:
    owner = await first_account(baobab.application.services)
    browser, path = await open_link(baobab, owner.account_id)
    browser.headers["referer"] = f"{baobab.client.base_url}{path.removeprefix('/')}"
    await browser.open(path)
    answer = await browser.send("/console/apps/create", of=owner.organisation_id, name="灯")
    assert answer.status_code == 400
    assert "needs a letter" in answer.text
    assert "灯" in answer.text


async def test_whoever_joins_a_team_or_works_in_one_is_led_to_the_inbox(baobab: Baobab) -> None:
    person = await create_person(baobab, "walt", role="member")
    _, path = await open_link(baobab, person.id)
    assert path == "/console"


async def test_a_new_account_of_its_own_is_led_through_the_first_steps_too(baobab: Baobab) -> None:
    browser = Browser(baobab)
    assert "/console/sign-up" in (await browser.open("/console/sign-in")).text
    await browser.open("/console/sign-up")
    answer = await browser.send("/console/sign-up", name="Vera", email="vera-w@example.com", password=PASSWORD)
    assert answer.headers["location"] == "/console/welcome"
    page = await browser.open("/console/welcome")
    # The organisation that is called as its owner has no name of its own yet.
    assert list_done(page.text) == ["way-in"]


@pytest.mark.own_installation
async def test_the_first_organisation_is_not_called_as_its_owner(baobab: Baobab) -> None:
    me = (await baobab.client.get("/platform/me", headers=baobab.owner)).json()
    [organisation] = me["organizations"]
    assert organisation["name"] == "My organisation" != me["user"]["name"]
    assert organisation["id"] == await get_first_organisation(baobab)
