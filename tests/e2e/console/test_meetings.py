"""The console's page of a call in a real browser: the recording is played, and what was said follows it."""

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer

MEETING = "https://meet.google.com/abc-defg-hij"


async def hold_call(browser_server: BrowserServer, app: str) -> str:
    """The id of a simulated bot whose recording and transcript are there."""
    meetings = f"/v1/{app}/ai/meetings"
    bot = await browser_server.ask("POST", meetings, {"meetingUrl": f"{MEETING}?simulate_seconds=12"})
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await browser_server.ask("GET", f"{meetings}/{bot['id']}"))["chargedUsd"] is None:
            await asyncio.sleep(0.2)
    return str(bot["id"])


@pytest.mark.parametrize("look", [{**DESKTOP, "color_scheme": "light"}, PHONE])
async def test_a_transcript_follows_its_recording_and_a_line_leads_to_its_place(
    browser_server: BrowserServer, look: dict[str, Any]
) -> None:
    name = f"{look['viewport']['width']}"
    app = await browser_server.create_app(f"calls-{name}")
    bot_id = await hold_call(browser_server, app)
    async with browser_server.open_person(**look) as person:
        page = person.page
        await page.goto(f"/console/apps/{app}/meetings/{bot_id}")
        lines = page.locator("[data-at]")
        marked_line = page.locator("[data-at][aria-current]")
        await expect(lines).to_have_count(3)
        await expect(marked_line).to_have_count(0)
        # The text of a line leads to its place, and the one that is heard is marked.
        await lines.nth(1).get_by_text("Yes. The new cards arrive on Monday").click()
        await expect(marked_line).to_contain_text("Charles Babbage")
        assert await page.evaluate("document.querySelector('video').currentTime") >= 3.6
        await person.photograph(f"call-second-line-{name}")
        await page.get_by_role("button", name="Play from 00:00").click()
        await expect(marked_line).to_contain_text("Ada Lovelace")
        # Played on, it comes to the next line by itself.
        await expect(marked_line).to_contain_text("Charles Babbage")
        await expect(marked_line).to_have_count(1)
        await page.keyboard.press("Escape")
        await page.evaluate("document.querySelector('video').pause()")
        # A player that is moved by hand, without being played, marks the line too.
        await page.evaluate("document.querySelector('video').currentTime = 0.5")
        await expect(marked_line).to_contain_text("Ada Lovelace")
        await person.check_accessibility()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


async def test_without_a_script_a_transcript_is_a_list_with_times_beside_the_recording(
    browser_server: BrowserServer,
) -> None:
    app = await browser_server.create_app("calls-plain")
    bot_id = await hold_call(browser_server, app)
    async with browser_server.open_person() as person:
        cookies = await person.context.cookies()
    plain = await browser_server.browser.new_context(
        base_url=browser_server.server.address, java_script_enabled=False, **DESKTOP
    )
    try:
        await plain.add_cookies([{**cookie} for cookie in cookies])  # type: ignore[typeddict-item]
        page = await plain.new_page()
        await page.goto(f"/console/apps/{app}/meetings/{bot_id}")
        lines = page.locator("ol.rows > li")
        await expect(lines).to_have_count(3)
        await expect(lines.nth(1)).to_contain_text(re.compile(r"Charles Babbage\s*,\s*00:03"))
        await expect(lines.nth(1)).to_contain_text("Yes. The new cards arrive on Monday")
        await expect(lines.get_by_role("button")).to_have_count(0)
        await expect(page.locator("video[controls]")).to_be_visible()
    finally:
        await plain.close()
