"""A run in a real browser while it goes on: what its model writes is read as it arrives."""

import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright, expect

from tests.cli.server_process import TIMEOUT_SECONDS, run_server
from tests.e2e.console.conftest import KEY, PHONE, BrowserServer
from tests.e2e.console.test_console import call_tool
from tests.runtime.gateway.upstream import start_upstream

GRAPH = {
    "spec_version": 1,
    "entry": "think",
    "nodes": {
        "think": {"type": "llm", "model": "openai/gpt-4o-mini", "input_template": "Hello!", "output_key": "answer"},
        "look": call_tool("kv_exists", "seen", key="a"),
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    "edges": [{"from": "think", "to": "look"}, {"from": "look", "to": "done"}],
    "tools": {"builtin": ["kv_exists"]},
}


@pytest.mark.parametrize("look", [{"viewport": {"width": 1200, "height": 800}}, PHONE])
async def test_a_run_is_followed_from_its_first_word_to_its_end(tmp_path: Path, look: dict[str, Any]) -> None:
    name = "phone" if look is PHONE else "desktop"
    async with start_upstream(behaviour="slow-tokens:0.7") as fake:
        settings = {"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise", "BAOBAB_AI_PROBE": "false"}
        settings |= {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": f"{fake.url}/v1"}
        with run_server(tmp_path / "data", settings=settings) as server:
            async with (
                httpx.AsyncClient(base_url=server.address, timeout=TIMEOUT_SECONDS) as client,
                async_playwright() as tool,
            ):
                chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
                browser = await tool.chromium.launch(executable_path=chromium)
                browser_server = BrowserServer(server, client, browser)
                app = await browser_server.create_app("live")
                await browser_server.ask("POST", f"/v1/{app}/agents", {"name": "poet", "graph_spec": GRAPH})
                async with browser_server.open_person(**look) as person:
                    path = f"/v1/{app}/agents/poet/runs"
                    run_id = (await browser_server.ask("POST", path, {"input": {}}))["run_id"]
                    await person.page.goto(f"/console/apps/{app}/runs/poet/{run_id}")
                    writing = person.page.locator("#live-text pre")
                    await expect(writing).to_be_visible()
                    await expect(person.page.locator(".graph .active")).to_have_count(1)
                    await person.photograph(f"run-live-{name}")
                    await expect(person.page.get_by_role("heading", name="completed")).to_be_visible()
                    await expect(writing).to_have_count(0)
                    await expect(person.page.locator(".graph .done")).to_have_count(3)
                    await expect(person.page.locator(".did.model")).to_contain_text("gpt-4o-mini")
                    await person.photograph(f"run-ended-{name}")
                    await person.page.goto("/console/usage")
                    await expect(person.page.locator("main")).to_contain_text("gpt-4o-mini")
                    await person.photograph(f"usage-{name}")
                    await person.check_accessibility()
