"""The page on which users of an app sign in, in a real browser: desktop and phone, light and dark."""

import asyncio
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer

EMAIL, PASSWORD = "ada@example.com", "correct Horse 7!"


async def read_link(browser_server: BrowserServer, app: str) -> str:
    """The link of the newest mail, when a job has written it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            mails = (await browser_server.ask("GET", f"/v1/{app}/auth/outbox"))["mails"]
            match = re.search(r"^http\S+/login-page\?link=\S+$", mails[0]["text"], re.MULTILINE) if mails else None
            if match is not None:
                return match[0]
            await asyncio.sleep(0.05)


async def wait_for_tokens(page: Page, site: str) -> dict[str, list[str]]:
    """The tokens with which the browser was sent to the app's site."""
    await page.wait_for_url(f"{site}/**")
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.parametrize(
    ("name", "options"), [("desktop", DESKTOP), ("phone", PHONE)], ids=["light on a desktop", "dark on a phone"]
)
async def test_a_person_signs_up_and_comes_back_by_the_link_of_a_mail(
    browser_server: BrowserServer, name: str, options: dict[str, Any]
) -> None:
    app = await browser_server.create_app(f"shop-{name}")
    # Another origin than the page's, so that its policy is what lets the browser go there.
    site = browser_server.server.address.replace("127.0.0.1", "localhost")
    async with browser_server.open_person(signed_in=False, **options) as person:
        page = person.page
        await page.goto(f"/auth/{app}/login-page?redirect_to={site}/health")
        await person.check_accessibility()
        await person.photograph(f"login-{name}")
        await page.get_by_role("link", name="Create an account").click()
        await page.get_by_label("E-mail address").fill(EMAIL)
        await page.get_by_label("Password").fill("short")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for()
        await person.check_accessibility()
        await person.photograph(f"login-refused-{name}")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Create the account").click()
        await page.get_by_role("heading", name="Confirm your address").wait_for()
        await person.check_accessibility()
        await page.get_by_role("button", name="Later").click()
        assert (await wait_for_tokens(page, site))["access_token"]

        await page.goto(f"/auth/{app}/login-page?view=mail&redirect_to={site}/health")
        await page.get_by_label("E-mail address").fill(EMAIL)
        await page.get_by_role("button", name="E-mail me a code").click()
        await page.get_by_label("Code").wait_for()
        await person.check_accessibility()
        await person.photograph(f"login-code-{name}")
        await page.goto(await read_link(browser_server, app))
        await person.check_accessibility()
        await person.photograph(f"login-link-{name}")
        await page.get_by_role("button", name="Sign in").click()
        assert (await wait_for_tokens(page, site))["refresh_token"]


async def test_the_console_shows_the_page_as_it_will_look_while_a_colour_is_typed(
    browser_server: BrowserServer,
) -> None:
    app = await browser_server.create_app("preview")
    async with browser_server.open_person() as person:
        await person.page.goto(f"/console/apps/{app}/sign-in")
        by_role = person.page.frame_locator("#preview").get_by_role("button", name="Sign in")
        await expect(by_role).to_have_css("background-color", "rgb(29, 78, 216)")
        await person.page.get_by_label("Colour of the buttons").fill("#ff8800")
        await expect(by_role).to_have_css("background-color", "rgb(255, 136, 0)")
        await person.photograph("preview")
        await person.page.get_by_role("button", name="Save").click()
        await person.page.get_by_role("status").filter(has_text="Saved").wait_for()
    settings = (await browser_server.ask("GET", f"/v1/{app}/auth/settings"))["settings"]
    assert settings["colour"] == "#ff8800"
