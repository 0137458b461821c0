"""The pages of people in a real browser: a colleague is invited and joins, and who is not signed in finds a way in."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer, Person
from tests.e2e.console.test_memory import PASSWORD, sign_in, sign_up

LOOKS = pytest.mark.parametrize("look", [{**DESKTOP, "color_scheme": "light"}, PHONE], ids=["desktop", "dark phone"])


async def check(person: Person, name: str) -> None:
    await person.photograph(name)
    await person.check_accessibility()
    assert await person.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), name


@LOOKS
async def test_a_colleague_is_invited_and_joins_by_the_link(
    browser_server: BrowserServer, look: dict[str, Any]
) -> None:
    name = str(look["viewport"]["width"])
    email, by = await sign_up(browser_server, f"admin-{name}")
    organisation = await browser_server.ask("POST", "/v1/organizations", {"name": "Acme Lamps"}, by)
    invited_address = f"grace-{name}@example.com"
    async with browser_server.open_person(signed_in=False, **look) as admin:
        await sign_in(admin, email)
        await admin.page.goto(f"/console/team?of={organisation['id']}")
        await admin.page.get_by_label("E-mail address").fill(invited_address)
        await admin.page.get_by_role("button", name="Make the invitation").click()
        link = await admin.page.locator("pre[data-copy]").inner_text()
        await check(admin, f"team-{name}")
        await admin.page.goto("/console/account")
        await check(admin, f"account-{name}")
    async with browser_server.open_person(signed_in=False, **look) as colleague:
        await colleague.page.goto(link)
        await check(colleague, f"join-{name}")
        await colleague.page.get_by_label("Your name").fill("Grace Hopper")
        await colleague.page.get_by_label("Password").fill(PASSWORD)
        await colleague.page.keyboard.press("Enter")
        await colleague.page.wait_for_url("**/console?joined=1")
    people = await browser_server.ask("GET", f"/v1/organizations/{organisation['id']}/members", by=by)
    assert len(people["members"]) == 2


@LOOKS
async def test_who_is_not_signed_in_finds_accessible_pages(browser_server: BrowserServer, look: dict[str, Any]) -> None:
    async with browser_server.open_person(signed_in=False, **look) as person:
        for page in ("sign-up", "forgot-password", "new-password?token=x", "confirm-email?token=x", "join?token=x"):
            await person.page.goto(f"/console/{page}")
            await expect(person.page.locator("h1")).to_be_visible()
            await check(person, f"{page.partition('?')[0]}-{look['viewport']['width']}")
