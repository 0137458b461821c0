"""An app that wants custom domains, and the two resolvers that are asked for their records."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs, run_job
from tests.name_server import NameServer, open_name_servers

NAME = "www.shop.example"
DAY, HOUR, MINUTE = 86400.0, 3600.0, 60.0


@dataclass
class Owner(Baobab):
    """The first account, with an app."""

    app: str = ""
    clock: FixedClock = field(default_factory=FixedClock)
    servers: Sequence[NameServer] = ()

    async def request(self, method: str, path: str, expected: int = 200, app: str = "", **options: Any) -> Any:
        url = f"/v1/{app or self.app}/custom-domains{path}"
        answer = await self.client.request(method, url, headers=self.owner, **options)
        assert answer.status_code == expected, answer.text
        return answer.json()

    async def add(self, hostname: str = NAME, expected: int = 201, app: str = "", **body: Any) -> Any:
        return await self.request("POST", "", expected, app, json={"hostname": hostname, **body})

    async def verify(self, domain_id: str, app: str = "") -> Any:
        return await self.request("POST", f"/{domain_id}/verify", app=app)

    async def read(self, domain_id: str, app: str = "") -> Any:
        """The domain in its state."""
        return (await self.request("GET", f"/{domain_id}/status", app=app))["domain"]

    async def activate(self, hostname: str = NAME, app: str = "", **body: Any) -> str:
        """Adds a domain whose records are right; returns its id."""
        answer = await self.add(hostname, app=app, **body)
        self.set_records(answer["verification_records"])
        domain_id: str = answer["domain"]["id"]
        assert (await self.verify(domain_id, app))["domain"]["status"] == "active"
        return domain_id

    def set_records(self, records: list[dict[str, str]], *servers: NameServer) -> None:
        """Sets records in some of the resolvers, or in all of them, beside those that are there."""
        for server in servers or self.servers:
            for record in records:
                others = server.records.get((record["name"], record["type"]), [])
                server.set(record["name"], record["type"], *others, record["value"])

    def take_proof_away(self, *servers: NameServer, name: str = NAME) -> None:
        for server in servers or self.servers:
            server.set(f"_baobab-challenge.{name}", "TXT")

    async def wait(self, seconds: float) -> None:
        """Lets time pass, and what is due then be done."""
        self.clock.advance(seconds)
        await run_job(self.application, "domains_sweep")
        await run_due_jobs(self.application)

    async def visit(self, path: str = "/", host: str = NAME, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={"host": host, "accept": "text/html", **headers})

    async def deploy(self, text: str = "<h1>Shop</h1>", app: str = "", **files: str) -> None:
        url = f"/v1/{app or self.app}/frontend/deployments/files"
        body = {"files": {"index.html": text, **{name.replace("__", "."): each for name, each in files.items()}}}
        answer = await self.client.post(url, json=body, headers=self.owner)
        assert answer.status_code == 201, answer.text


@pytest.fixture
def plan() -> str:
    return "launch"


@pytest.fixture
async def owner(tmp_path: Path, plan: str) -> AsyncIterator[Owner]:
    clock = FixedClock()
    async with open_name_servers() as servers:
        variables = {
            "BAOBAB_PLAN": plan,
            "BAOBAB_BASE_URL": "https://api.example",
            "BAOBAB_DNS_RESOLVERS": ",".join(server.address for server in servers),
        }
        async with open_installation(tmp_path, variables, clock=clock) as installation:
            app = await installation.create_app()
            yield Owner(installation.application, installation.client, app=app, clock=clock, servers=servers)
