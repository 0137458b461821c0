"""The templates that ship, in a real browser: one is cloned in the console, and all are used on their own sites."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.e2e.console.conftest import PHONE, BrowserServer, Person
from tests.e2e.console.test_memory import sign_in as sign_in_with_password
from tests.e2e.console.test_memory import sign_up as sign_up_account
from tests.e2e.console.test_team import check
from tests.tools.templates.test_examples import EXAMPLES, load_deployment

PASSWORD = "correct Horse 7!"


async def deploy(browser_server: BrowserServer, name: str) -> str:
    """Deploys an example as the first account, and returns its app."""
    requests, answer = load_deployment().deploy(EXAMPLES / name, name), None
    while True:
        try:
            method, path, body = requests.send(answer)
        except StopIteration as end:
            app: str = end.value
            return app
        if isinstance(body, bytes):
            (await browser_server.client.request(method, path, content=body)).raise_for_status()
            answer = None
        else:
            answer = await browser_server.ask(method, path, body)


async def find_site(browser_server: BrowserServer, app: str, by: dict[str, str] | None = None) -> str:
    url: str = (await browser_server.ask("GET", f"/v1/{app}/frontend/deployments", by=by))["url"]
    return url


async def enter(person: Person, site: str, name: str) -> None:
    """Opens a site and creates an account there."""
    await person.page.goto(site)
    await person.page.get_by_label("E-mail").fill(f"{name}@example.com")
    await person.page.get_by_label("Password").fill(PASSWORD)
    await person.page.get_by_role("button", name="Create an account").click()
    await expect(person.page.get_by_text(f"You are {name}@example.com.")).to_be_visible()


async def test_a_support_desk_is_cloned_filled_in_and_a_refund_is_decided(browser_server: BrowserServer) -> None:
    template = await deploy(browser_server, "support-desk")
    email, by = await sign_up_account(browser_server, "desk-owner")
    async with (
        browser_server.open_person(signed_in=False) as owner,
        browser_server.open_person(signed_in=False, **PHONE) as customer,
    ):
        await sign_in_with_password(owner, email)
        await owner.page.goto("/console/templates?q=support")
        await owner.page.locator(f'a[href$="/templates/{template}"]').click()
        await check(owner, "template-desk")
        await owner.page.get_by_label("Name", exact=True).fill("my-desk")
        await owner.page.get_by_role("button", name="Clone").click()
        await owner.page.wait_for_url("**/console/clones/*")
        for _ in range(100):
            if await owner.page.get_by_text("DESK_EMAIL").count():
                break
            await owner.page.wait_for_timeout(200)
            await owner.page.reload()
        await check(owner, "clone-desk")
        href = await owner.page.get_by_role("link", name="Open the app").get_attribute("href")
        app = (href or "").rpartition("/")[2]
        # What the clone's page says is left: the variable, and the agent that uses the app's right.
        await browser_server.ask(
            "PATCH", f"/v1/{app}/functions/contact/env", {"envVars": {"DESK_EMAIL": "help@shop.example"}}, by
        )
        agent: Any = await browser_server.ask("GET", f"/v1/{app}/agents/desk", by=by)
        graph = agent.get("agent", agent)["graph_spec"]
        await browser_server.ask("PATCH", f"/v1/{app}/agents/desk", {"status": "active", "graph_spec": graph}, by)

        await customer.page.goto(await find_site(browser_server, app, by))
        await check(customer, "site-desk-sign-in")
        await enter(customer, await find_site(browser_server, app, by), "grace")
        await expect(customer.page.locator("#contact")).to_contain_text("help@shop.example")
        await customer.page.get_by_label("Topic").select_option("Returns and refunds")
        await customer.page.get_by_label("Your question").fill("<b>The lamp</b> is broken.")
        await customer.page.get_by_role("button", name="Send").click()
        await expect(customer.page.locator("#tickets")).to_contain_text("<b>The lamp</b> is broken. (open)")
        await customer.page.get_by_label("Search the handbook").fill("How long can I return it?")
        await customer.page.get_by_role("button", name="Search").click()
        await expect(customer.page.locator("#passages")).to_contain_text("30 days")
        await customer.page.get_by_role("button", name="Ask for a refund").click()
        await expect(customer.page.get_by_role("status")).to_contain_text("The desk was asked")
        await check(customer, "site-desk")

        await owner.page.goto("/console")
        await owner.page.locator("main a.open", has_text="refunded").click()
        await owner.page.wait_for_url("**open=*")
        await owner.page.get_by_label("amount").fill("20")
        await check(owner, "desk-question")
        await owner.page.locator("#pane").get_by_role("button", name="Answer").click()
        # It uses the app's own right, so it is asked once more.
        await owner.page.wait_for_url("**/answer")
        await owner.page.get_by_role("button", name="Answer", exact=True).click()
        await expect(customer.page.locator("#tickets")).to_contain_text("refunded: 20")
        await expect(customer.page.get_by_role("status")).to_have_text("Refunded: 20")
        # Whoever signs out leaves nothing in the page.
        await customer.page.get_by_role("button", name="Sign out").click()
        await expect(customer.page.get_by_label("Password")).to_be_visible()
        assert "lamp" not in await customer.page.inner_text("body")


async def test_guests_book_at_the_page_and_see_nothing_of_each_other(browser_server: BrowserServer) -> None:
    app = await deploy(browser_server, "bookings")
    site = await find_site(browser_server, app)
    async with (
        browser_server.open_person(signed_in=False) as guest,
        browser_server.open_person(signed_in=False, **PHONE) as other,
    ):
        for person, name, words in ((guest, "ada", "It is booked."), (other, "bob", "Somebody else has the room")):
            await enter(person, site, name)
            await person.page.get_by_label("Room").select_option("Attic")
            await person.page.get_by_label("Day").fill("2030-01-01")
            await person.page.get_by_label("Note").fill(f"Tea for {name}")
            await person.page.get_by_role("button", name="Book").click()
            await expect(person.page.get_by_role("status")).to_contain_text(words)
        await expect(guest.page.locator("#bookings")).to_contain_text("Attic, 2030-01-01, 9 o'clock Tea for ada")
        await expect(other.page.locator("#bookings")).to_have_text("None yet.")
        await check(guest, "site-bookings")
        # A page that is opened again knows who is there.
        await guest.page.reload()
        await expect(guest.page.locator("#bookings")).to_contain_text("Tea for ada")


async def test_notes_are_written_found_and_deleted_at_the_page(browser_server: BrowserServer) -> None:
    app = await deploy(browser_server, "notes")
    site = await find_site(browser_server, app)
    async with (
        browser_server.open_person(signed_in=False) as writer,
        browser_server.open_person(signed_in=False, **PHONE) as other,
    ):
        await enter(writer, site, "eve")
        await enter(other, site, "dan")
        await writer.page.get_by_label("Title").fill("Soup")
        await writer.page.get_by_label("Text").fill("Lentils, carrots and cumin.")
        await writer.page.get_by_role("button", name="Save").click()
        await expect(writer.page.locator("#notes")).to_contain_text("Soup: Lentils")
        await check(writer, "site-notes")
        # The note is found once the job has read it.
        await writer.page.get_by_label("Search your notes").fill("legumes")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while "Lentils" not in await writer.page.inner_text("#passages"):
                await writer.page.get_by_role("button", name="Search").click()
                await writer.page.wait_for_timeout(200)
        await other.page.reload()
        await expect(other.page.locator("#notes")).to_have_text("None yet.")
        await writer.page.get_by_role("button", name="Delete Soup").click()
        await expect(writer.page.locator("#notes")).to_have_text("None yet.")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
async def test_a_folder_is_deployed_with_the_form_of_the_console(
    browser_server: BrowserServer, tmp_path: Path, *, script: bool
) -> None:
    email, by = await sign_up_account(browser_server, f"site-owner-{script}".lower())
    app = (await browser_server.ask("POST", "/init", {"name": "pages"}, by))["app_id"]
    (tmp_path / "dist/assets").mkdir(parents=True)
    (tmp_path / "dist/index.html").write_text("<!doctype html><html lang=en><title>Hi</title><h1>Hello</h1>")
    (tmp_path / "dist/assets/app.js").write_text("run()")
    async with browser_server.open_person(signed_in=False, java_script_enabled=script) as owner:
        await sign_in_with_password(owner, email)
        await owner.page.goto(f"/console/apps/{app}/site")
        if script:
            await check(owner, "site-form")
        await owner.page.get_by_label("Or its folder").set_input_files(tmp_path / "dist")
        await owner.page.get_by_role("button", name="Deploy").click()
        for _ in range(100):
            if await owner.page.get_by_text("2 files").count():
                break
            await owner.page.wait_for_timeout(200)
            await owner.page.reload()
        assert "live" in await owner.read()
        await owner.page.goto(await find_site(browser_server, app, by))
        await expect(owner.page.get_by_role("heading", name="Hello")).to_be_visible()
        answer = await owner.page.goto(f"{await find_site(browser_server, app, by)}/assets/app.js")
        assert answer is not None
        assert await answer.text() == "run()"
