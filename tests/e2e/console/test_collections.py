"""The console's pages of collections in a real browser: documents, searches, answers and evaluations."""

import json
from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer
from tests.e2e.console.test_console import HOSTILE

OTHER = "11111111-1111-4111-8111-111111111111"
TREES = (
    "# Trees\n\nBaobabs store water in their trunks. They live for a thousand years. " + "Leaves fall. " * 30 + HOSTILE
)


async def fill(browser_server: BrowserServer, app: str) -> tuple[str, str]:
    """A collection with a document that is ready, one that waits and one that failed; its page and the first one."""
    base = f"/v1/{app}/rag/collections"
    await browser_server.ask("POST", base, {"name": "facts", "description": HOSTILE})
    metadata = {"lang": "en", "note": HOSTILE}
    body = {"text": TREES, "filename": "trees.md", "metadata": metadata}
    document: str = (await browser_server.ask("POST", f"{base}/facts/ingest", body))["documentId"]
    broken_file = {"filename": f"{'long' * 40}.pdf", "contentType": "application/pdf", "content": "no pdf"}
    file = await browser_server.ask("POST", f"/storage/{app}/objects", broken_file)
    await browser_server.ask("POST", f"{base}/facts/ingest", {"storage_object_id": file["id"]})
    return f"/console/apps/{app}/collections/facts", document


@pytest.mark.parametrize("look", [{**DESKTOP, "color_scheme": "light"}, {**DESKTOP, "color_scheme": "dark"}, PHONE])
async def test_documents_are_watched_searched_and_measured(browser_server: BrowserServer, look: dict[str, Any]) -> None:
    name = f"{look['viewport']['width']}-{look['color_scheme']}"
    app = await browser_server.create_app(f"collections-{name}")
    path, document = await fill(browser_server, app)
    async with browser_server.open_person(**look) as person:

        async def check(view: str) -> None:
            await person.photograph(f"collections-{view}-{name}")
            await person.check_accessibility()
            assert await person.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), view

        await person.page.goto(path)
        # The page learns of it by itself.
        await expect(person.page.get_by_text("1 of 2 documents are ready")).to_be_visible(timeout=60_000)
        await expect(person.page.get_by_text("; 1 failed")).to_be_visible(timeout=60_000)
        for summary in await person.page.locator("main summary").all():
            await summary.click()
        await check("collection")
        await person.page.goto(path.removesuffix("/facts"))
        await check("list")
        await person.page.goto(f"{path}/documents/{document}")
        await check("document")
        await person.page.goto(path)
        await person.page.get_by_role("link", name="Search", exact=True).click()
        await person.page.get_by_label("A question, or words").fill("Which tree stores water?")
        await person.page.keyboard.press("Enter")
        await expect(person.page.locator("mark", has_text="water").first).to_be_visible()
        await check("search")
        await person.page.get_by_label("Model").fill("baobab/echo")
        await person.page.get_by_role("button", name="Have it answered").click()
        await expect(person.page.get_by_role("heading", name="Answer")).to_be_visible()
        await check("answer")
        await person.page.goto(f"{path}/evaluation")
        cases = [{"query": f"Which tree? {HOSTILE}", "relevant": [document]}, {"query": "x", "relevant": [OTHER]}]
        await person.page.get_by_label("Up to 50 questions").fill("\n".join(map(json.dumps, cases)))
        await person.page.get_by_role("button", name="Measure").click()
        await expect(person.page.get_by_role("heading", name="Measured")).to_be_visible()
        await check("evaluation")


async def test_a_text_is_added_and_found_without_script(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("no-script")
    async with browser_server.open_person(signed_in=False, **PHONE, java_script_enabled=False) as person:
        await person.sign_in()
        await person.page.goto(f"/console/apps/{app}/collections")
        await person.page.get_by_label("Name").fill("facts")
        await person.page.get_by_role("button", name="Make").click()
        await person.page.get_by_label("Text, plain").fill("Baobabs store water.")
        await person.page.get_by_role("button", name="Add").first.click()
        await expect(person.page.get_by_text("of 1 document is ready")).to_be_visible()
        await person.page.get_by_role("link", name="Search", exact=True).click()
        await person.page.get_by_label("A question, or words").fill("water")
        await person.page.get_by_role("button", name="Search").click()
        await expect(person.page.get_by_role("heading", name="Search facts")).to_be_visible()
