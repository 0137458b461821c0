"""kill -9 of a server with functions at work: no webhook and no hour is lost, no step that has ended is repeated."""

import asyncio
import hmac
import json
import random
from collections import Counter, defaultdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds

_SENDERS, _KILLED_AFTER_SECONDS, _MINUTE = 3, 4.0, 60.0
_SECRET = "whsec_of_the_crash_test"
_TABLES = {"tables": {"marks": {"columns": {"subject": "text", "kind": "text", "token": "text"}}}}
# What each attempt got from its first step is written down by the attempt itself, outside of any step: were a step
# that has ended done again, another token would come out of it.
_CODE = """
export default async (req, ctx) => {
  const event = await req.json();
  const subject = String(event.id ?? event.scheduled_at);
  const mark = (kind, token) =>
    ctx.db.query("insert into marks (subject, kind, token) values ($1, $2, $3)", [subject, kind, token]);
  const token = await ctx.step("draw", () => crypto.randomUUID());
  await mark("drawn", token);
  await ctx.step("write", async () => { await mark("written", token); });
  ctx.waitUntil((async () => {
    await new Promise((done) => setTimeout(done, 150));
    await mark("late", token);
  })());
  return Response.json({token});
}
"""


async def prepare(session: aiohttp.ClientSession, server: ServerProcess) -> str:
    app = await create_app(session, server)
    await ask(session, server, "POST", f"/v1/{app}/schema/apply", schema=_TABLES)
    hook = {"type": "webhook", "config": {"provider": "custom", "secret": _SECRET}}
    hour = {"type": "cron", "config": {"schedule": "* * * * *", "catch_up": True}}
    for name, trigger in (("hooked", hook), ("hourly", hour)):
        await ask(
            session, server, "POST", f"/v1/{app}/functions", name=name, code=_CODE, timeoutMs=30_000, triggers=[trigger]
        )
    return app


async def ask(session: aiohttp.ClientSession, server: ServerProcess, method: str, path: str, **body: Any) -> Any:
    async with session.request(method, server.address + path, json=body or None) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def send_webhooks(
    session: aiohttp.ClientSession, server: ServerProcess, app: str, name: str, acknowledged_ids: set[str]
) -> None:
    """Sends webhooks until the server is gone, each a second time at once, and notes which were acknowledged."""
    for number in range(10_000):
        event_id = f"{name}-{number}"
        content = json.dumps({"id": event_id}).encode()
        headers = {"x-signature": hmac.new(_SECRET.encode(), content, sha256).hexdigest()}
        path = f"{server.address}/v1/{app}/webhook/hooked"
        for _ in range(2):
            try:
                async with session.post(path, data=content, headers=headers) as response:
                    if response.status == 200:
                        acknowledged_ids.add(event_id)
                    await response.read()
            except aiohttp.ClientError:
                return


async def list_marks(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> list[dict[str, str]]:
    """Lists what functions have written."""
    marks: list[dict[str, str]] = []
    while True:
        path = f"/v1/{app}/marks?order=subject,kind,token&limit=1000&offset={len(marks)}"
        page = await ask(session, server, "GET", path)
        marks += page
        if len(page) < 1000:
            return marks


async def list_unsettled(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> list[str]:
    """Lists the webhooks and hours that have not come to their end."""
    hooks = await ask(session, server, "GET", f"/v1/{app}/functions/hooked/webhooks?status=running")
    unsettled = [each["id"] for each in hooks["deliveries"]]
    for trigger in (await ask(session, server, "GET", f"/v1/{app}/triggers"))["triggers"]:
        path = f"/v1/{app}/triggers/{trigger['name']}/deliveries?limit=100"
        hours = (await ask(session, server, "GET", path))["deliveries"]
        unsettled += [each["id"] for each in hours if each["status"] == "pending"]
    return unsettled


async def list_hours(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> Counter[tuple[str, str]]:
    """Counts the hours that were started, by what became of them and why."""
    [trigger] = (await ask(session, server, "GET", f"/v1/{app}/triggers"))["triggers"]
    path = f"/v1/{app}/triggers/{trigger['name']}/deliveries?limit=100"
    hours = (await ask(session, server, "GET", path))["deliveries"]
    return Counter((each["status"], each["error"] or "") for each in hours)


@pytest.mark.timeout(1800)
async def test_functions_lose_nothing_and_repeat_no_step_however_often_the_server_is_killed(tmp_path: Path) -> None:
    dice = random.Random(17)
    here = Installation.on_backend(tmp_path, settings={"BAOBAB_PLAN": "enterprise"})
    acknowledged_ids: set[str] = set()
    app, minutes = "", 0
    async with open_session() as session:
        for round_number in list_rounds(2, 10):
            # Each start is a minute later: an hour is due, and what the killed server had claimed is over soon.
            minutes = round_number
            with here.start_machine(clock_offset=minutes * _MINUTE) as server:
                app = app or await prepare(session, server)
                senders = [
                    asyncio.create_task(
                        send_webhooks(session, server, app, f"r{round_number}s{index}", acknowledged_ids)
                    )
                    for index in range(_SENDERS)
                ]
                await asyncio.sleep(dice.random() * _KILLED_AFTER_SECONDS)
                server.kill()
                await asyncio.gather(*senders)
        with here.start_machine(clock_offset=(minutes + 1) * _MINUTE) as server:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while await list_unsettled(session, server, app):
                    await asyncio.sleep(0.5)
            marks = await list_marks(session, server, app)
            hours = await list_hours(session, server, app)
    tokens: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for mark in marks:
        tokens[mark["subject"]][mark["kind"]].add(mark["token"])
    assert acknowledged_ids
    lost_ids = {each for each in acknowledged_ids if set(tokens[each]) != {"drawn", "written", "late"}}
    assert not lost_ids, f"acknowledged, and not done to the end: {lost_ids}"
    twice = {subject: kinds for subject, kinds in tokens.items() if len(set().union(*kinds.values())) > 1}
    assert not twice, f"a step that had ended was done again: {twice}"
    times = [subject for subject, kinds in tokens.items() if "T" in subject and "late" in kinds]
    assert not [status for status, _ in hours if status not in ("delivered", "skipped")], hours
    assert hours["delivered", ""] == len(times) > 0, (hours, sorted(tokens))
