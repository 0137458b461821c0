"""Passkeys and the second factor on the page on which users sign in, with Chromium's virtual authenticator."""

import re
import time
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page

from baobab.tools.users.totp import compute_code
from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer
from tests.e2e.console.test_login_page import PASSWORD, wait_for_tokens

BOTH = pytest.mark.parametrize(
    ("name", "options"), [("desktop", DESKTOP), ("phone", PHONE)], ids=["light on a desktop", "dark on a phone"]
)


async def add_authenticator(context: BrowserContext, page: Page) -> None:
    """Gives the browser a device with a finger that is always there."""
    protocol = await context.new_cdp_session(page)
    await protocol.send("WebAuthn.enable")
    device: Any = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    device |= {"isUserVerified": True, "automaticPresenceSimulation": True}
    await protocol.send("WebAuthn.addVirtualAuthenticator", {"options": device})


async def fill(page: Page, email: str) -> None:
    await page.get_by_label("E-mail address").fill(email)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")


@BOTH
async def test_a_person_makes_a_passkey_and_signs_in_with_it(
    browser_server: BrowserServer, name: str, options: dict[str, Any]
) -> None:
    app, email = await browser_server.create_app(f"keys-{name}"), f"{name}@example.com"
    site = browser_server.server.address
    # A passkey belongs to a name, and 127.0.0.1 is none.
    own = site.replace("127.0.0.1", "localhost")
    async with browser_server.open_person(signed_in=False, **options) as person:
        page = person.page
        await add_authenticator(person.context, page)
        start = f"{own}/auth/{app}/login-page?redirect_to={site}/health"
        await page.goto(start + "&view=sign-up")
        await fill(page, email)
        await page.get_by_role("button", name="Later").click()
        await wait_for_tokens(page, site)

        await page.goto(start)
        await page.get_by_role("link", name="Add a passkey").click()
        await person.check_accessibility()
        await fill(page, email)
        await page.get_by_role("button", name="Make a passkey").wait_for()
        await person.check_accessibility()
        await person.photograph(f"passkey-{name}")
        await page.get_by_role("button", name="Make a passkey").click()
        assert (await wait_for_tokens(page, site))["access_token"]

        await page.goto(start)
        await person.check_accessibility()
        await person.photograph(f"passkey-sign-in-{name}")
        await page.get_by_role("button", name="Sign in with a passkey").click()
        token = (await wait_for_tokens(page, site))["access_token"][0]
        bearer = {"authorization": f"Bearer {token}"}
        assert (await browser_server.ask("GET", f"/auth/{app}/me", by=bearer))["email"] == email
        assert len((await browser_server.ask("GET", f"/auth/{app}/passkeys", by=bearer))["passkeys"]) == 1

        await browser_server.ask("PATCH", f"/v1/{app}/auth/settings", {"second_factor": "required"})
        await page.goto(start)
        await fill(page, email)
        await page.get_by_role("button", name="Use a passkey").wait_for()
        await person.check_accessibility()
        await page.get_by_role("button", name="Use a passkey").click()
        assert (await wait_for_tokens(page, site))["access_token"]


@BOTH
async def test_a_person_makes_a_passkey_where_the_app_asks_for_a_second_factor(
    browser_server: BrowserServer, name: str, options: dict[str, Any]
) -> None:
    app, email = await browser_server.create_app(f"asks-{name}"), f"{name}@example.com"
    await browser_server.ask("PATCH", f"/v1/{app}/auth/settings", {"second_factor": "required"})
    site = browser_server.server.address
    own = site.replace("127.0.0.1", "localhost")
    async with browser_server.open_person(signed_in=False, **options) as person:
        page = person.page
        await add_authenticator(person.context, page)
        start = f"{own}/auth/{app}/login-page?redirect_to={site}/health"
        await page.goto(start + "&view=sign-up")
        await fill(page, email)
        await page.get_by_role("button", name="Make a passkey instead").wait_for()
        await person.check_accessibility()
        await person.photograph(f"passkey-set-up-{name}")
        await page.get_by_role("button", name="Make a passkey instead").click()
        token = (await wait_for_tokens(page, site))["access_token"][0]
        bearer = {"authorization": f"Bearer {token}"}
        answer = await browser_server.ask("GET", f"/auth/{app}/second-factor", by=bearer)
        assert (answer["totp"], answer["passkeys"]) == (False, 1)

        await page.goto(start)
        await fill(page, email)
        await page.get_by_role("button", name="Use a passkey").click()
        assert (await wait_for_tokens(page, site))["access_token"]


@BOTH
async def test_a_person_sets_up_an_authenticator_app_where_the_app_asks_for_one(
    browser_server: BrowserServer, name: str, options: dict[str, Any]
) -> None:
    app, email = await browser_server.create_app(f"codes-{name}"), f"{name}@example.com"
    await browser_server.ask("PATCH", f"/v1/{app}/auth/settings", {"second_factor": "required"})
    site = browser_server.server.address.replace("127.0.0.1", "localhost")
    # None of this needs a script.
    async with browser_server.open_person(signed_in=False, java_script_enabled=False, **options) as person:
        page = person.page
        await page.goto(f"/auth/{app}/login-page?view=sign-up&redirect_to={site}/health")
        await fill(page, email)
        await page.get_by_label("Code that the app shows").fill("000000")
        await page.get_by_role("heading", name="Set up").wait_for()
        await person.photograph(f"second-factor-set-up-{name}")
        secret = await page.locator("code").inner_text()
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for()
        # The same secret, so that nobody has to scan twice.
        assert await page.locator("code").inner_text() == secret
        await page.get_by_label("Code that the app shows").fill(compute_now(secret))
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Your recovery codes").wait_for()
        recovery = await page.locator(".codes li").all_inner_texts()
        assert len(recovery) == 10
        await person.photograph(f"recovery-codes-{name}")
        await page.get_by_role("link", name="I have kept them").click()
        assert (await wait_for_tokens(page, site))["access_token"]

        await page.goto(f"/auth/{app}/login-page?redirect_to={site}/health")
        await fill(page, email)
        await page.get_by_role("heading", name="One more step").wait_for()
        await person.photograph(f"second-factor-{name}")
        await page.get_by_label("Code").fill("wrong")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for()
        await page.get_by_label("Code").fill(recovery[0])
        await page.keyboard.press("Enter")
        assert (await wait_for_tokens(page, site))["access_token"]


def compute_now(secret: str) -> str:
    return compute_code(re.sub(r"\s", "", secret), int(time.time()) // 30)
