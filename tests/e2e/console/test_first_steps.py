"""The first steps in a real browser: on a desktop in light and a phone in dark, with and without script."""

from typing import Any

import pytest

from tests.e2e.console.conftest import DESKTOP, BrowserServer
from tests.e2e.console.test_memory import sign_in, sign_up
from tests.e2e.console.test_team import LOOKS, check


@LOOKS
@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
async def test_a_new_owner_is_led_through_the_first_steps(
    browser_server: BrowserServer, look: dict[str, Any], *, script: bool
) -> None:
    name = f"{look['viewport']['width']}-{'script' if script else 'plain'}"
    email, _ = await sign_up(browser_server, f"owner-{name}")
    async with browser_server.open_person(signed_in=False, java_script_enabled=script, **look) as owner:
        await sign_in(owner, email)
        await owner.page.wait_for_url("**/console/welcome")
        if script:
            await check(owner, f"welcome-{name}")
        await owner.page.get_by_label("Name of the organisation").fill("Acme Lamps")
        await owner.page.get_by_role("button", name="Save the names").click()
        await owner.page.get_by_label("Name of the app").fill("Support desk")
        await owner.page.get_by_role("button", name="Make the app").click()
        await owner.page.wait_for_url("**/console/apps/app_*")
        assert "Support desk" in await owner.read()
        if not script:
            return
        await check(owner, f"named-app-{name}")
        if look == DESKTOP | {"color_scheme": "light"}:
            await owner.page.locator(".of-organisation summary").click()
            await check(owner, f"organisation-in-app-{name}")
        await owner.page.goto("/console/connect")
        await check(owner, f"connect-{name}")
        await owner.page.goto("/console/welcome")
        await check(owner, f"welcome-done-{name}")
        await owner.page.goto("/console/team")
        await check(owner, f"roles-{name}")
