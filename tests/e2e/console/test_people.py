"""The console's page of people in a real browser."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer


@pytest.mark.parametrize("look", [{**DESKTOP, "color_scheme": "light"}, {**DESKTOP, "color_scheme": "dark"}, PHONE])
async def test_people_are_searched_and_read(browser_server: BrowserServer, look: dict[str, Any]) -> None:
    name = f"{look['viewport']['width']}-{look['color_scheme']}"
    app = await browser_server.create_app(f"people-{name}")
    async with browser_server.open_person(**look) as person:

        async def check(view: str) -> None:
            await person.photograph(f"people-{view}-{name}")
            await person.check_accessibility()
            assert await person.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), view

        await person.page.goto(f"/console/apps/{app}/people")
        await check("empty")
        await person.page.get_by_label("Who, in words").fill("software engineers")
        await person.page.get_by_role("button", name="Search", exact=True).click()
        await expect(person.page.get_by_text("More results")).to_be_visible()
        await check("search")
        await person.page.get_by_role("button", name="Read the profile of result 1", exact=True).click()
        await expect(person.page.get_by_text("Look up the e-mail address")).to_be_visible()
        await check("profile")
        await person.page.get_by_role("button", name="Look up the e-mail address").click()
        await expect(person.page.get_by_text("The lookup is queued")).to_be_visible()
        await check("lookups")
