"""The page about custom domains, followed by somebody who sets the records that it prints."""

import asyncio
from pathlib import Path

import httpx

from tests.cli.server_process import run_server
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.docs.shell import check_order, run_shell, set_variables
from tests.name_server import open_name_servers

PAGE = (ROOT / "docs" / "domains.md").read_text()


async def test_a_name_is_added_proven_and_served_as_the_page_says(tmp_path: Path) -> None:
    add, verify = find_blocks(PAGE.partition("\n## ")[0], "sh")
    with open_name_servers() as name_servers:
        resolvers = ",".join(server.address for server in name_servers)
        settings = {"BAOBAB_DNS_RESOLVERS": resolvers, "BAOBAB_PLAN": "launch"}
        with run_server(tmp_path / "data", settings=settings) as server:
            variables = await asyncio.to_thread(run_shell, set_variables(server) + 'echo "$APP"')
            app = variables.strip()
            commands = f"BAOBAB={server.address}\nKEY={server.key}\nAPP={app}\n{add}"
            records = (await asyncio.to_thread(run_shell, commands + 'echo "ADDED=$ADDED"')).partition("ADDED=")
            check_order(
                records[0], "TXT _baobab-challenge.www.example.com baobab-", "CNAME www.example.com ", ".localhost"
            )
            for line in records[0].splitlines():
                kind, name, value = line.split()
                for name_server in name_servers:
                    name_server.set(name, kind, value)
            commands = f"BAOBAB={server.address}\nKEY={server.key}\nAPP={app}\nADDED='{records[2].strip()}'\n{verify}"
            assert await asyncio.to_thread(run_shell, commands) == "active\n"
            async with httpx.AsyncClient(base_url=server.address) as client:
                files = {"files": {"index.html": "home"}}
                path, headers = f"/v1/{app}/frontend/deployments/files", {"authorization": f"Bearer {server.key}"}
                assert (await client.post(path, json=files, headers=headers)).status_code == 201
                assert (await client.get("/", headers={"host": "www.example.com"})).text == "home"
