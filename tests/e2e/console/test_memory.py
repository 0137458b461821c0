"""The console's pages of the substrate in a real browser: they are read, and what waits is decided."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer, Person
from tests.e2e.console.test_console import HOSTILE

PASSWORD = "correct Horse 7!"
BASE = "/v1/me/substrate"
RULE: dict[str, Any] = {
    "name": "Entities of today",
    "trigger_cron": "0 8 * * 1-5",
    "condition_mode": "row_query",
    "condition": {"table": "entities", "where": {"==": [{"var": "type"}, "person"]}, "limit": 3},
    "action_capability": "record_learning",
    "action_payload_template": {"title": "Seen {{row.display_name}}", "description": "x"},
}


async def sign_up(browser_server: BrowserServer, name: str) -> tuple[str, dict[str, str]]:
    """An account that signs in with a password: keys of apps do not open the substrate. Its address and headers."""
    email = f"{name}@example.com"
    signup = {"email": email, "password": PASSWORD, "name": name}
    await browser_server.ask("POST", "/platform/signup", signup)
    tokens = await browser_server.ask("POST", "/platform/login", {"email": email, "password": PASSWORD})
    return email, {"authorization": f"Bearer {tokens['token']}"}


async def sign_in(person: Person, email: str) -> None:
    await person.page.goto("/console")
    await person.page.get_by_label("E-mail address").fill(email)
    await person.page.get_by_label("Password").fill(PASSWORD)
    await person.page.keyboard.press("Enter")
    await person.page.wait_for_url(re.compile(r"/console(/welcome)?$"))


async def fill(browser_server: BrowserServer, by: dict[str, str]) -> list[str]:
    """Some of everything; the paths of its pages."""

    async def propose(capability: str, **payload: Any) -> Any:
        return await browser_server.ask(
            "POST", f"{BASE}/actions/propose", {"capability": capability, "payload": payload}, by
        )

    target = {"webhook_url": "https://told.invalid/", "signing_secret": "a secret of eight"}
    await browser_server.ask("PUT", f"{BASE}/outbox-targets/update_entity", target, by)
    proposal = await propose(
        "upsert_entity", type="person", display_name=f"Ada {HOSTILE[:20]}", attrs={"team": "engines"}
    )
    entity = proposal["result"]["entity_id"]
    other = (await propose("upsert_entity", type="person", display_name="A. Lovelace"))["result"]["entity_id"]
    merging = await propose("merge_entities", loser_id=other, winner_id=entity, reason="one person")
    await browser_server.ask("POST", f"{BASE}/actions/{merging['action_id']}/approve", {}, by)
    changed_proposal = await propose("update_entity", id=entity, display_name="Ada Lovelace")
    await propose("record_learning", title="Blue doors", description=HOSTILE)
    await propose("record_decision", title="We ship on Mondays", kind="operational")
    waits = await propose("place_call", to="Ada", purpose="Ask about the doors")
    rule = await browser_server.ask("POST", f"{BASE}/attention-rules", RULE, by)
    start = "/console/substrate"
    return [
        "/console",
        start,
        f"{start}?q=blue+doors&by=words",
        f"{start}/actions",
        f"{start}/actions/{changed_proposal['action_id']}",
        f"{start}/actions/{waits['action_id']}",
        f"{start}/entities",
        f"{start}/entities/{entity}",
        f"{start}/rules",
        f"{start}/rules/{rule['id']}",
        f"{start}/outbox",
    ]


@pytest.mark.parametrize("look", [{**DESKTOP, "color_scheme": "light"}, {**DESKTOP, "color_scheme": "dark"}, PHONE])
async def test_every_page_of_memory_is_accessible_and_fits(browser_server: BrowserServer, look: dict[str, Any]) -> None:
    name = f"{look['viewport']['width']}-{look['color_scheme']}"
    email, by = await sign_up(browser_server, f"memory-{name}")
    paths = await fill(browser_server, by)
    async with browser_server.open_person(signed_in=False, **look) as person:
        await sign_in(person, email)
        for number, path in enumerate(paths):
            await person.page.goto(path)
            await person.photograph(f"memory-{number}-{name}")
            await person.check_accessibility()
            assert await person.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), path


async def test_what_waits_is_approved_from_the_inbox_and_an_action_is_undone(browser_server: BrowserServer) -> None:
    email, by = await sign_up(browser_server, "decider")
    paths = await fill(browser_server, by)
    async with browser_server.open_person(signed_in=False) as person:
        await sign_in(person, email)
        await person.page.goto("/console")
        await person.page.get_by_role("link", name="place call").click()
        await person.page.get_by_role("button", name="Approve", exact=True).click()
        await expect(person.page.locator("h1 .tag")).to_have_text("executed")
        await person.page.goto(paths[4])
        await person.page.get_by_role("button", name="Undo").click()
        await expect(person.page.locator("h1 .tag")).to_have_text("reverted")
        assert person.questions == ["Undo this action?"]
