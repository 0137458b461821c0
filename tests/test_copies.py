"""A copy of an installation acts for nobody until it is said to live, and then once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.backends import copy_data, release_data
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.http.console.test_console import sign_in
from tests.installation import open_installation
from tests.jobs import run_due_jobs, run_job
from tests.tools.agents.conftest import build_graph
from tests.tools.agents.test_webhooks import Receiver, start_receiver
from tests.tools.ai.meetings.fake_provider import KEY
from tests.tools.ai.meetings.fake_recall import FakeRecall, start_recall
from tests.tools.mail.test_delivery import Relay, open_relay

SAY = build_graph(
    {
        "say": {"type": "llm", "input_template": "/say Hello.", "output_key": "answer"},
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    ("say", "done"),
)


@dataclass
class Outside:
    """Everybody whom the installations of a test could reach."""

    relay: Relay
    receiver: Receiver
    recall: FakeRecall
    settings: dict[str, str]

    def count(self) -> tuple[int, int, int]:
        """The mails, webhooks and bots that have come."""
        return len(self.relay.mails), len(self.receiver.deliveries), len(self.recall.creations)


@pytest.fixture
async def outside() -> AsyncIterator[Outside]:
    relay = Relay()
    async with open_relay(relay) as port, start_receiver() as receiver, start_recall(FixedClock()) as recall:
        settings = {
            "BAOBAB_SMTP_URL": f"smtp://127.0.0.1:{port}",
            "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32",
            "BAOBAB_MEETINGS_PROVIDER": "recall",
            "BAOBAB_MEETINGS_KEY": KEY,
            "BAOBAB_MEETINGS_URL": recall.url,
        }
        yield Outside(relay, receiver, recall, settings)


async def ask(baobab: Baobab, method: str, path: str, **body: Any) -> Any:
    answer = await baobab.client.request(method, path, json=body or None, headers=baobab.owner)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


async def leave_work(baobab: Baobab, outside: Outside) -> str:
    """Ask for a mail, a run that tells a webhook, a bot in a meeting, and triggers' webhooks about a row, a key and an
    hour that comes when the copy runs; the app.
    """
    app = await baobab.create_app()
    tables = {"tables": {"tickets": {"columns": {"id": {"type": "serial", "primaryKey": True}}}}}
    await ask(baobab, "POST", f"/v1/{app}/schema/apply", schema=tables)
    trigger = {"event": "row.inserted", "table": "tickets", "webhook": outside.receiver.url}
    await ask(baobab, "PUT", f"/v1/{app}/triggers/new", **trigger)
    for name, event in (
        ("keys", {"event": "key.changed", "prefix": ""}),
        ("hour", {"event": "schedule", "schedule": "0 9 * * *"}),
    ):
        await ask(baobab, "PUT", f"/v1/{app}/triggers/{name}", webhook=outside.receiver.url, **event)
    await ask(baobab, "POST", f"/v1/{app}/tickets", id=1)
    await ask(baobab, "PUT", f"/v1/{app}/kv/b", value=1)
    await ask(baobab, "POST", f"/auth/{app}/signup", email="ada@example.com", password="correct Horse 7!")
    await ask(baobab, "POST", f"/v1/{app}/agents", name="say", graph_spec=SAY)
    await ask(baobab, "POST", f"/v1/{app}/agents/say/runs", input={}, webhook_url=outside.receiver.url)
    await ask(baobab, "POST", f"/v1/{app}/ai/meetings", meetingUrl="https://meet.google.com/abc-defg-hij")
    return app


async def refuse(baobab: Baobab, method: str, path: str, **body: Any) -> dict[str, Any]:
    answer = await baobab.client.request(method, path, json=body, headers=baobab.owner)
    assert answer.status_code == 409, answer.text
    error: dict[str, Any] = answer.json()
    return error.get("error", error) if isinstance(error.get("error"), dict) else error


@pytest.mark.parametrize("choice", ["run", "drop"])
async def test_a_restored_copy_acts_only_once_it_lives_and_then_as_it_was_told(
    tmp_path: Path, outside: Outside, choice: str
) -> None:
    data, copy_folder = tmp_path / "data", tmp_path / "copy"
    async with open_installation(data, {**outside.settings, "BAOBAB_JOBS": "0"}, clock=FixedClock()) as original:
        app = await leave_work(original, outside)
    before = outside.count()
    copy_data(data, copy_folder)
    clock = FixedClock()
    clock.advance(3600)
    async with open_installation(copy_folder, outside.settings, clock=clock) as copy:
        # Whatever is due would be found together with this job, which comes after it.
        await run_job(copy.application, "jobs_prune")
        assert outside.count() == before
        async with open_installation(data, outside.settings, clock=FixedClock()) as original:
            await run_due_jobs(original.application)
            await run_job(copy.application, "jobs_prune")
        done_once = outside.count()
        assert done_once == (1, 3, 1)

        # It serves what stays in the house, and says why it refuses the rest.
        clock.advance(1)
        await ask(copy, "PUT", f"/v1/{app}/kv/a", value=1)
        run = await refuse(copy, "POST", f"/v1/{app}/agents/say/runs", input={})
        assert (run["code"], "--live" in run["remediation"]) == ("INSTALLATION_IS_COPY", True)
        await refuse(copy, "POST", f"/v1/{app}/ai/meetings", meetingUrl="https://meet.google.com/abc-defg-hij")
        await refuse(copy, "POST", f"/auth/{app}/forgot-password", email="ada@example.com")
        await refuse(copy, "POST", f"/v1/{app}/triggers/new/test", run=True)
        due = await ask(copy, "GET", f"/v1/{app}/triggers/hour")
        assert datetime.fromisoformat(due["next_at"]) == datetime(2027, 1, 15, 9, tzinfo=UTC)
        assert "copy" in (await ask(copy, "GET", "/health/ready"))["checks"]["outgoing"]
        assert (
            "This installation is a copy"
            in (await copy.client.get("/console", headers=await sign_in(copy), follow_redirects=True)).text
        )

        state = await ask(copy, "GET", "/v1/installation")
        waiting = {each["kind"]: each for each in state["waiting"]}
        assert waiting["mail_deliver"]["dropped"]
        assert waiting["agents_advance"]["jobs"] == 1
        assert (await refuse(copy, "POST", "/v1/installation/live"))["code"] == "COPY_CHOICE_MISSING"
        assert outside.count() == done_once
        assert (await ask(copy, "POST", "/v1/installation/live", waiting=choice))["state"] == "live"
        await run_job(copy.application, "triggers_tick")
        await run_due_jobs(copy.application)
        mails, webhooks, bots = outside.count()
        # The hour and the key of the copy are its own; the row, the key and the run of before are done if so chosen.
        assert (mails, webhooks) == ((2, 8) if choice == "run" else (1, 5))
        assert bots == 2
        (run,) = (await ask(copy, "GET", f"/v1/{app}/agents/say/runs"))["runs"]
        assert run["status"] == ("completed" if choice == "run" else "cancelled")
        (mail,) = (await ask(copy, "GET", f"/v1/{app}/auth/outbox"))["mails"]
        assert mail["status"] == ("sent" if choice == "run" else "failed")

        # What it is asked for from now on is done.
        await ask(copy, "POST", f"/v1/{app}/agents/say/runs", input={}, webhook_url=outside.receiver.url)
        await ask(copy, "POST", f"/v1/{app}/tickets", id=2)
        await run_due_jobs(copy.application)
        assert len(outside.receiver.deliveries) == webhooks + 2
    async with open_installation(copy_folder, outside.settings, clock=clock) as copy:
        assert (await ask(copy, "GET", "/v1/installation"))["state"] == "live"
    release_data(copy_folder)
    release_data(data)
