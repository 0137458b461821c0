"""A server, people at browsers, and an agent that asks them. Chromium is the system's own."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server

KEY = "bb_sk_" + "E" * 40
OWNER = {"authorization": f"Bearer {KEY}"}
DESKTOP: dict[str, Any] = {"viewport": {"width": 1200, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True}
SCREENSHOTS = Path("build/e2e")
expect.set_options(timeout=20_000)
_AXE = Path(__file__).parents[1] / "node_modules/axe-core/axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@dataclass
class ApiServer:
    """The server as programs see it."""

    server: ServerProcess
    client: httpx.AsyncClient

    async def ask(self, method: str, path: str, body: Any = None, by: dict[str, str] | None = None) -> Any:
        answer = await self.client.request(method, path, json=body, headers=by or OWNER)
        assert answer.is_success or answer.status_code == 428, answer.text
        return answer.json() if answer.content else None

    async def create_app(self, name: str) -> str:
        app_id: str = (await self.ask("POST", "/init", {"name": name}))["app_id"]
        return app_id

    async def create_asking_key(self, name: str) -> dict[str, str]:
        """The headers of a key whose every change waits for a person."""
        answer = await self.ask("POST", "/api-keys", {"name": name, "approval": "write"})
        return {"authorization": f"Bearer {answer['key']}"}

    async def start_run(self, app_id: str, nodes: dict[str, Any], run_input: Any = None) -> str:
        """The path of a run of a new agent whose nodes follow each other."""
        names = list(nodes)
        tools = sorted({node["tool_ref"]["name"] for node in nodes.values() if "tool_ref" in node})
        graph = {"spec_version": 1, "entry": names[0], "nodes": nodes, "tools": {"builtin": tools}}
        graph["edges"] = [{"from": one, "to": other} for one, other in pairwise(names)]
        name = f"agent-{len(json.dumps(graph))}-{names[0]}"
        await self.ask("POST", f"/v1/{app_id}/agents", {"name": name, "graph_spec": graph})
        answer = await self.ask("POST", f"/v1/{app_id}/agents/{name}/runs", {"input": run_input or {}})
        return f"/v1/{app_id}/agents/{name}/runs/{answer['run_id']}"

    async def wait_for_run(self, path: str, *statuses: str) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                run: dict[str, Any] = (await self.ask("GET", path))["run"]
                if run["status"] in (statuses or ("completed", "failed", "cancelled", "timed_out")):
                    return run
                await asyncio.sleep(0.05)


@dataclass
class BrowserServer(ApiServer):
    """The same, and a browser for people."""

    browser: Browser

    @asynccontextmanager
    async def open_person(self, *, signed_in: bool = True, **options: Any) -> AsyncIterator["Person"]:
        """A person at a browser of their own. At the end nothing must have been logged as an error there."""
        context = await self.browser.new_context(base_url=self.server.address, **(options or DESKTOP))
        context.set_default_timeout(20_000)
        person = Person(context, await context.new_page())
        person.listen()
        try:
            if signed_in:
                await person.sign_in()
            yield person
            assert person.complaints == []
        finally:
            await context.close()


@dataclass
class Person:
    context: BrowserContext
    page: Page

    def __post_init__(self) -> None:
        self.complaints: list[str] = []
        self.questions: list[str] = []

    def listen(self) -> None:
        """Notes what the browser complains about, and says yes where a page asks twice."""

        async def accept(dialog: Any) -> None:
            self.questions.append(dialog.message)
            await dialog.accept()

        def note(message: Any) -> None:
            # The browser itself reports refused requests, such as a decision that somebody else was quicker with.
            if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
                self.complaints.append(message.text)

        self.page.on("dialog", accept)
        self.page.on("console", note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    async def sign_in(self) -> None:
        await self.page.goto("/")
        await self.page.get_by_text("With an API key instead").click()
        await self.page.get_by_label("API key of your account").fill(KEY)
        await self.page.keyboard.press("Enter")
        await self.page.wait_for_url(re.compile(r"/console(/welcome)?$"))

    async def read(self) -> str:
        return await self.page.inner_text("main")

    async def photograph(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    async def check_accessibility(self) -> None:
        """axe finds nothing against WCAG 2.2 AA. It is put in past the page's own policy."""
        await self.page.evaluate(_AXE.read_text() + "; undefined")
        tags = {"runOnly": {"type": "tag", "values": _RULES}}
        violations = await self.page.evaluate("async (options) => (await axe.run(document, options)).violations", tags)
        summaries = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in violations]
        assert summaries == [], (self.page.url, summaries)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # Providers of sign-in are on this machine.
    settings = {"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
    with run_server(tmp_path_factory.mktemp("server") / "data", settings=settings) as started_server:
        yield started_server


@pytest.fixture
async def api_server(server: ServerProcess) -> AsyncIterator[ApiServer]:
    async with httpx.AsyncClient(base_url=server.address, timeout=TIMEOUT_SECONDS) as client:
        yield ApiServer(server, client)


@pytest.fixture
async def browser_server(server: ServerProcess) -> AsyncIterator[BrowserServer]:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert chromium, "These tests need Chromium: apt-get install chromium, or its path in the variable CHROMIUM."
    async with (
        httpx.AsyncClient(base_url=server.address, timeout=TIMEOUT_SECONDS) as client,
        async_playwright() as tool,
    ):
        browser = await tool.chromium.launch(executable_path=chromium)
        try:
            yield BrowserServer(server, client, browser)
        finally:
            await browser.close()
