"""kill -9 while decisions of the console are held: each counts exactly once, and what was taken back never does."""

import asyncio
import random
import re
from pathlib import Path

import aiohttp

from baobab.tools.approvals.inbox.holding import HOLD
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.approvals_load import ApprovalsLoad
from tests.crash.machines import KEY, Installation, open_session
from tests.crash.rounds import list_rounds

CALLS_OF_A_ROUND = 4


class Browser:
    """A person at the console, who signs in once: the session outlives the servers."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._cookie = ""

    async def sign_in(self, server: ServerProcess) -> None:
        headers = {"origin": server.address}
        path = f"{server.address}/console/sign-in"
        async with self._session.post(path, data={"key": KEY}, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
            self._cookie = answer.headers["set-cookie"].partition(";")[0]

    async def read(self, server: ServerProcess, path: str) -> str:
        async with self._session.get(server.address + path, headers={"cookie": self._cookie}) as answer:
            assert answer.status == 200
            return await answer.text()

    async def send(self, server: ServerProcess, path: str, **fields: str) -> None:
        csrf = re.search(r'name="csrf" value="([0-9a-f]{64})"', await self.read(server, "/console"))
        assert csrf is not None
        headers = {"origin": server.address, "cookie": self._cookie}
        form = {"csrf": csrf[1], **fields}
        async with self._session.post(
            server.address + path, data=form, headers=headers, allow_redirects=False
        ) as answer:
            assert answer.status == 303, await answer.text()

    async def approve(self, server: ServerProcess, approval_id: str) -> str:
        """Approves a call, and returns the id of the held decision."""
        await self.send(server, f"/console/approvals/{approval_id}/approve")
        field = re.search(r'name="held" value="([0-9a-f-]{36})"', await self.read(server, "/console"))
        assert field is not None
        return field[1]


async def decide_calls(load: ApprovalsLoad, server: ServerProcess, browser: Browser) -> str:
    """Proposes calls, takes the decision about one back, and approves the others. Returns the id of the former."""
    before = set(load.approval_ids)
    await load.propose_calls(server, CALLS_OF_A_ROUND)
    first, *others = (approval_id for approval_id in load.approval_ids if approval_id not in before)
    await browser.send(server, "/console/approvals/take-back", held=await browser.approve(server, first))
    for approval_id in others:
        await browser.approve(server, approval_id)
    return first


async def wait_until_executed(load: ApprovalsLoad, server: ServerProcess, approval_ids: list[str]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for approval_id in approval_ids:
            while await load.fetch_status(server, approval_id) != "executed":
                await asyncio.sleep(0.2)


async def verify(load: ApprovalsLoad, server: ServerProcess, taken_back_ids: list[str]) -> None:
    """Counts what was done: all that was approved once, and nothing that was taken back."""
    raises = [by for approval_id, by in load.raises.items() if approval_id not in taken_back_ids]
    names = [name for approval_id, name in load.names.items() if approval_id not in taken_back_ids]
    assert (await load.ask(server, "GET", f"/v1/{load.app}/kv/n"))[1]["value"] == sum(raises)
    _, key_list = await load.ask(server, "GET", "/api-keys")
    assert sorted(key["name"] for key in key_list["keys"] if key["name"].startswith("key ")) == sorted(names)
    for approval_id in taken_back_ids:
        assert await load.fetch_status(server, approval_id) == "pending"


async def test_a_held_decision_counts_once_through_kills_and_one_that_was_taken_back_never(tmp_path: Path) -> None:
    here, dice, load, taken_back_ids = Installation.on_backend(tmp_path), random.Random(41), None, list[str]()
    async with open_session() as session:
        browser = Browser(session)
        for number in list_rounds(2):
            with here.start_machine() as server:
                if load is None:
                    load = await ApprovalsLoad.create(session, server)
                    await browser.sign_in(server)
                taken_back_ids.append(await decide_calls(load, server, browser))
                # At once, and then at any moment, also while the decisions begin to count.
                await asyncio.sleep(0 if number == 0 else dice.random() * (HOLD.total_seconds() + 1))
                server.kill()
        assert load is not None
        approved_ids = [approval_id for approval_id in load.approval_ids if approval_id not in taken_back_ids]
        with here.start_machine() as server:
            await wait_until_executed(load, server, approved_ids)
            await verify(load, server, taken_back_ids)
            server.kill()
        with here.start_machine() as server:
            await verify(load, server, taken_back_ids)
