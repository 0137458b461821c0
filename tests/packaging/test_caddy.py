"""The Caddyfile, with the real Caddy before a real server: a custom domain over TLS, and nothing for strangers."""

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from tests.cli.server_process import TIMEOUT_SECONDS, run_server
from tests.docs.generate import ROOT
from tests.name_server import open_name_servers
from tests.ports import free_port

CADDYFILE, COMPOSE = ROOT / "Caddyfile", ROOT / "compose.caddy.yaml"
NAME, API = "www.shop.example", "api.example"
KEY = "bb_sk_" + "C" * 40


@dataclass
class Caddy:
    port: int
    plain_port: int
    root: Path
    """The certificate of its own authority."""

    def connect(self, name: str) -> httpx.AsyncClient:
        """A browser that asks for one host, which its certificate must name."""
        context = ssl.create_default_context(cafile=str(self.root))
        transport = httpx.AsyncHTTPTransport(verify=context)
        client = httpx.AsyncClient(
            transport=transport,
            base_url=f"https://127.0.0.1:{self.port}",
            headers={"host": f"{name}:{self.port}"},
            timeout=TIMEOUT_SECONDS,
        )

        async def name_server(request: httpx.Request) -> None:
            request.extensions["sni_hostname"] = name

        client.event_hooks = {"request": [name_server]}
        return client


@contextlib.contextmanager
def run_caddy(folder: Path, server_port: int, port: int) -> Iterator[Caddy]:
    """Caddy with the Caddyfile as it ships: on loopback, with an authority of its own that nobody else trusts."""
    program = os.environ.get("CADDY") or shutil.which("caddy", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "Caddy is not installed (apt-get install caddy)"
    plain_port, home = free_port(), folder / "caddy"
    options = f"admin off\ndefault_bind 127.0.0.1\nhttp_port {plain_port}\nhttps_port {port}"
    environment = {
        "PATH": os.environ["PATH"],
        **dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(home)),
        "CADDY_ASKS": f"http://127.0.0.1:{server_port}",
        "CADDY_UPSTREAMS": f"127.0.0.1:{server_port}",
        "CADDY_ISSUER": "internal",
        "CADDY_OPTIONS": options,
    }
    command = [program, "run", "--config", str(CADDYFILE), "--adapter", "caddyfile"]
    with (folder / "caddy.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        yield Caddy(port, plain_port, home / "caddy" / "pki" / "authorities" / "local" / "root.crt")
        assert process.poll() is None, (folder / "caddy.log").read_text()
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Caddy]:
    """Caddy before a server whose app has a site and a custom domain."""
    port, server_port = free_port(), free_port()
    with open_name_servers() as name_servers:
        settings = {
            "BAOBAB_BASE_URL": f"https://{API}:{port}",
            "BAOBAB_BOOTSTRAP_KEY": KEY,
            "BAOBAB_PLAN": "launch",
            "BAOBAB_TRUSTED_PROXIES": "127.0.0.1",
            "BAOBAB_DNS_RESOLVERS": ",".join(server.address for server in name_servers),
        }
        with (
            run_server(tmp_path / "data", settings=settings, port=server_port),
            run_caddy(tmp_path, server_port, port) as caddy,
        ):
            headers = {"authorization": f"Bearer {KEY}"}
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not await _is_answering(caddy):
                    await asyncio.sleep(0.05)
            async with caddy.connect(API) as client:
                app = (await client.post("/init", json={"name": "shop"}, headers=headers)).json()["app_id"]
                files = {"files": {"index.html": "<h1>Shop</h1>"}}
                await client.post(f"/v1/{app}/frontend/deployments/files", json=files, headers=headers)
                path = f"/v1/{app}/custom-domains"
                answer = (await client.post(path, json={"hostname": NAME}, headers=headers)).json()
                for record in answer["verification_records"]:
                    for server in name_servers:
                        server.set(record["name"], record["type"], record["value"])
                answer = (await client.post(f"{path}/{answer['domain']['id']}/verify", headers=headers)).json()
                assert answer["domain"]["status"] == "active", answer
            yield caddy


async def _is_answering(caddy: Caddy) -> bool:
    """Whether Caddy has its authority, and the server behind it answers."""
    if not caddy.root.exists():
        return False
    try:
        async with caddy.connect(API) as client:
            return (await client.get("/health/ready")).status_code == 200
    except httpx.TransportError:
        return False


async def test_a_site_is_at_its_custom_domain_over_tls_and_a_strangers_name_has_no_certificate(shop: Caddy) -> None:
    async with shop.connect(NAME) as client:
        answer = await client.get("/")
        assert (answer.status_code, answer.text) == (200, "<h1>Shop</h1>")
        # It asks for this machine, and tells nobody else.
        assert (await client.get("/tls/ask", params={"domain": NAME})).status_code == 404
    for name in ("www.stranger.example", f"x.{NAME}", f"nobody.{API}"):
        async with shop.connect(name) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/")
    async with shop.connect(API) as client:
        assert (await client.get("/tls/ask", params={"domain": NAME})).status_code == 404
        answer = await client.get("/console/sign-in")
        assert answer.status_code == 200, answer.text
    async with httpx.AsyncClient() as plain_client:
        address = f"http://127.0.0.1:{shop.plain_port}/a?b=c"
        answer = await plain_client.get(address, headers={"host": NAME})
        assert (answer.status_code, answer.headers["location"]) == (308, f"https://{NAME}/a?b=c")


def test_the_compose_file_fits_the_public_schema() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    command = [str(program), "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert process.returncode == 0, process.stdout + process.stderr


def test_caddy_is_where_the_server_lets_it_ask() -> None:
    base_file, overlay = yaml.safe_load((ROOT / "compose.yaml").read_text()), yaml.safe_load(COMPOSE.read_text())
    caddy = overlay["services"]["caddy"]
    assert caddy["network_mode"] == "service:machine-1"
    address = overlay["services"]["machine-1"]["networks"]["outside"]["ipv4_address"]
    for name in ("machine-1", "machine-2"):
        assert name in base_file["services"]
        proxies = overlay["services"][name]["environment"]["BAOBAB_TRUSTED_PROXIES"].split(",")
        assert proxies == ["127.0.0.1", address]
    assert "./Caddyfile:/etc/caddy/Caddyfile:ro" in caddy["volumes"]
    assert set(overlay["services"]["machine-1"]["networks"]) == {"outside", "stores"}
