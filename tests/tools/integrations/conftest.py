"""An app whose users connect accounts at the simulator, and a browser for its pages."""

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit
from uuid import uuid4

import httpx
import pytest

from tests.clock import FixedClock
from tests.conftest import ADDRESS, Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs
from tests.users import mint_user_token

BACK = "http://localhost:3000/settings"


@dataclass
class Browser:
    """A browser with cookies of its own, which follows no redirect by itself."""

    client: httpx.AsyncClient
    cookies: dict[str, str] = field(default_factory=dict)

    async def open(self, address: str) -> httpx.Response:
        return self._keep(await self.client.get(self._path(address), headers=self._headers))

    async def send(self, address: str, **fields: str) -> httpx.Response:
        headers = {**self._headers, "origin": ADDRESS, "sec-fetch-site": "same-origin"}
        return self._keep(await self.client.post(self._path(address), data=fields, headers=headers))

    async def agree(self, address: str) -> str:
        """Opens a link, goes on, and returns the address of the service's consent page."""
        page = await self.open(address)
        assert page.status_code == 200, page.text
        ticket = re.search(r'name="ticket" value="([^"]+)"', page.text)
        assert ticket is not None
        answer = await self.send(address.partition("?")[0], ticket=ticket[1])
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    async def connect(self, address: str, choice: str = "Allow as ada") -> dict[str, str]:
        """Connects an account at the simulator, and returns what the app is told."""
        consent = await self.open(await self.agree(address))
        links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', consent.text)
        callback = next(unescape(link) for link, words in links if choice in unescape(words))
        answer = await self.open(callback)
        assert answer.status_code == 302, answer.text
        return dict(parse_qsl(urlsplit(answer.headers["location"]).query))

    @property
    def _headers(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def _path(self, address: str) -> str:
        return address.removeprefix(ADDRESS)

    def _keep(self, answer: httpx.Response) -> httpx.Response:
        for text in answer.headers.get_list("set-cookie"):
            name, _, value = text.partition(";")[0].partition("=")
            self.cookies[name] = value
        self.client.cookies.clear()
        return answer


@dataclass
class Shop:
    """An app with integrations, and one of its users."""

    baobab: Baobab
    app: str
    clock: FixedClock
    user_id: str
    user: dict[str, str]

    async def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, status: int | None = None, **body: Any
    ) -> Any:
        """Calls a route of integrations; as whoever runs the app, unless `headers` say otherwise."""
        address = f"/v1/{self.app}/integrations{path}"
        json = body or None if method not in ("GET", "DELETE") else None
        answer = await self.baobab.client.request(method, address, json=json, headers=headers or self.baobab.owner)
        if status is not None:
            assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def configure(self, *slugs: str, **fields: Any) -> None:
        for slug in slugs:
            await self.ask("POST", "/configure", status=200, toolkit=slug, **fields)

    async def begin(self, toolkit: str = "gmail", **fields: Any) -> str:
        answer = await self.ask("POST", "/connect", self.user, 200, toolkit=toolkit, redirectUrl=BACK, **fields)
        address: str = answer["authUrl"]
        return address

    async def connect(self, toolkit: str = "gmail", choice: str = "Allow as ada", **fields: Any) -> None:
        answer = await self.open_browser().connect(await self.begin(toolkit, **fields), choice)
        assert answer == {"status": "connected", "toolkit": toolkit}

    async def execute(self, tool: str, params: dict[str, Any] | None = None, **fields: Any) -> Any:
        """Calls a tool as the user, and returns what the service has answered."""
        answer = await self.ask("POST", "/execute", self.user, 200, toolName=tool, params=params or {}, **fields)
        return answer["data"]

    async def list_connections(self) -> list[dict[str, Any]]:
        connections: list[dict[str, Any]] = (await self.ask("GET", "/connections", self.user, 200))["connections"]
        return connections

    async def create_user(self) -> tuple[str, dict[str, str]]:
        user_id = str(uuid4())
        return user_id, await _sign_in(self.baobab, self.app, user_id)

    def open_browser(self) -> Browser:
        return Browser(self.baobab.client)

    async def read_audit_log(self, event: str) -> list[dict[str, Any]]:
        address = f"/v1/{self.app}/audit-logs?event_type={event}"
        answer = await self.baobab.client.get(address, headers=self.baobab.owner)
        logs: list[dict[str, Any]] = answer.json()["logs"]
        return logs

    async def run_jobs(self) -> None:
        await run_due_jobs(self.baobab.application)


async def _sign_in(baobab: Baobab, app: str, user_id: str) -> dict[str, str]:
    """Headers of a user whose token lasts for as long as the clock is moved."""
    token = await mint_user_token(baobab.application, app, user_id, 10**8)
    return {"authorization": f"Bearer {token}"}


@contextlib.asynccontextmanager
async def open_shop(
    data: Path, variables: dict[str, str] | None = None, clock: FixedClock | None = None
) -> AsyncIterator[Shop]:
    clock = clock or FixedClock()
    async with open_installation(data, variables, clock=clock) as baobab:
        app, user_id = await baobab.create_app(), str(uuid4())
        yield Shop(baobab, app, clock, user_id, await _sign_in(baobab, app, user_id))


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        yield shop


def read_query(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
