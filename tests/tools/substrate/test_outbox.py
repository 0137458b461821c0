"""The outbox: executed actions are told to targets, signed, and tried again until they are taken."""

import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from baobab import composition
from baobab.settings import load_settings
from baobab.tools.core.errors import BaobabError
from baobab.tools.substrate.outbox import PAUSES
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.jobs import run_due_jobs
from tests.tools.ai.conftest import serve_app
from tests.tools.conftest import ToolHarness
from tests.tools.substrate.conftest import Substrate

SECRET = "correct horse battery"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ToolHarness]:
    """One that may call this machine, where deliveries are received; nothing else that is private."""
    clock = FixedClock()
    settings = load_settings({**prepare_data(tmp_path), "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}, data=tmp_path)
    async with composition.open_application(settings, clock=clock) as application:
        yield ToolHarness(application.services, application.registry, clock, tmp_path)
    release_data(tmp_path)


class Receiver:
    """Takes deliveries, after it has refused as many as it is told to."""

    def __init__(self, refusing: int) -> None:
        self.refusing, self.url = refusing, ""
        self.deliveries: list[tuple[dict[str, str], bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.deliveries.append(({name.decode(): value.decode() for name, value in scope["headers"]}, body))
        self.refusing -= 1
        await send({"type": "http.response.start", "status": 500 if self.refusing >= 0 else 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def start_receiver(refusing: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(refusing)
    async with serve_app(receiver) as address:
        receiver.url = f"{address}/told"
        yield receiver


async def register(substrate: Substrate, url: str, capability: str = "record_decision", **more: Any) -> Any:
    return await substrate.call(
        "outbox_target_put", capability=capability, webhook_url=url, signing_secret=SECRET, **more
    )


async def decide(substrate: Substrate) -> Any:
    return await substrate.propose("record_decision", title="Ship", kind="operational")


async def find_row(substrate: Substrate) -> Any:
    (row,) = (await substrate.call("outbox"))["outbox"]
    return row


async def test_an_executed_action_is_told_with_a_signature_of_its_body(substrate: Substrate) -> None:
    async with start_receiver() as receiver:
        await register(substrate, receiver.url)
        decision = await decide(substrate)
        await substrate.do("record_learning", title="Not told", description="Nobody has asked for it.")
        await run_due_jobs(substrate.harness)
    ((headers, body),) = receiver.deliveries
    assert headers["x-platform-signature"] == "sha256=" + hmac.new(SECRET.encode(), body, sha256).hexdigest()
    action = await substrate.call("action", action_id=decision["action_id"])
    assert json.loads(body) == {
        "action_id": decision["action_id"],
        "capability": "record_decision",
        "payload": action["payload"],
        "executed_at": action["executed_at"].isoformat().replace("+00:00", "Z"),
    }
    row = await find_row(substrate)
    assert (row["state"], row["attempts"], row["last_status"], row["action_id"]) == (
        "delivered",
        1,
        204,
        decision["action_id"],
    )


async def test_what_waits_for_a_person_is_told_when_it_was_approved(substrate: Substrate) -> None:
    async with start_receiver() as receiver:
        await register(substrate, receiver.url, "send_email_draft")
        waits = await substrate.propose("send_email_draft", to="bob@example.com", subject="Hello", body="Hi Bob")
        await run_due_jobs(substrate.harness)
        assert receiver.deliveries == []
        await substrate.call("approve", action_id=waits["action_id"])
        await run_due_jobs(substrate.harness)
    assert [json.loads(body)["action_id"] for _, body in receiver.deliveries] == [waits["action_id"]]


async def test_a_delivery_that_is_refused_is_tried_again_with_growing_pauses_and_the_same_id(
    substrate: Substrate,
) -> None:
    async with start_receiver(refusing=2) as receiver:
        await register(substrate, receiver.url)
        await decide(substrate)
        await run_due_jobs(substrate.harness)
        row = await find_row(substrate)
        assert (row["state"], row["attempts"], row["last_status"]) == ("pending", 1, 500)
        for pause in PAUSES[:2]:
            substrate.harness.clock.advance(pause - 1)
            await run_due_jobs(substrate.harness)
            received_count = len(receiver.deliveries)
            substrate.harness.clock.advance(1)
            await run_due_jobs(substrate.harness)
            assert len(receiver.deliveries) == received_count + 1
    assert len({headers["x-platform-delivery"] for headers, _ in receiver.deliveries}) == 1
    assert len({body for _, body in receiver.deliveries}) == 1
    assert (await find_row(substrate))["state"] == "delivered"


async def test_after_eight_tries_a_delivery_is_given_up_until_somebody_retries_it(substrate: Substrate) -> None:
    async with start_receiver(refusing=8) as receiver:
        await register(substrate, receiver.url)
        began = substrate.harness.clock.now()
        await decide(substrate)
        tried_after, planned_times = [], []
        for minute in range(250):
            received_count = len(receiver.deliveries)
            await run_due_jobs(substrate.harness)
            tried_after += [minute] * (len(receiver.deliveries) - received_count)
            if len(receiver.deliveries) > received_count:
                planned_times.append((await find_row(substrate))["next_attempt_at"])
            substrate.harness.clock.advance(60)
        # Pauses of 1, 2, 4, 8, 16, 32 and 60 minutes; each try says when the next one is due.
        assert tried_after == [0, 1, 3, 7, 15, 31, 63, 123]
        assert [round((each - began).total_seconds() / 60) for each in planned_times[:-1]] == tried_after[1:]
        row = await find_row(substrate)
        assert (row["state"], row["attempts"], planned_times[-1]) == ("failed", 8, None)
        assert [each["id"] for each in (await substrate.call("outbox", state="failed"))["outbox"]] == [row["id"]]
        again = await substrate.call("outbox_retry", outbox_id=row["id"])
        assert (again["state"], again["attempts"]) == ("pending", 0)
        await run_due_jobs(substrate.harness)
        assert (await find_row(substrate))["state"] == "delivered"
    with pytest.raises(BaobabError) as refusal:
        await substrate.call("outbox_retry", outbox_id=row["id"])
    assert (refusal.value.code, refusal.value.status) == ("wrong_status", 409)


async def test_pages_of_deliveries_leave_nothing_out_although_the_clock_stands_still(substrate: Substrate) -> None:
    await register(substrate, "https://told.invalid/")
    action_ids = [(await decide(substrate))["action_id"] for _ in range(3)]
    listed_ids, before = [], None
    while True:
        page = await substrate.call("outbox", limit=1, before=before)
        listed_ids += [row["action_id"] for row in page["outbox"]]
        before = page["next_before"]
        if before is None:
            break
    assert listed_ids == action_ids[::-1]


async def test_a_cancelled_delivery_is_not_tried_again(substrate: Substrate) -> None:
    async with start_receiver(refusing=9) as receiver:
        await register(substrate, receiver.url)
        await decide(substrate)
        await run_due_jobs(substrate.harness)
        row = await find_row(substrate)
        assert (await substrate.call("outbox_cancel", outbox_id=row["id"]))["state"] == "cancelled"
        substrate.harness.clock.advance(3600)
        await run_due_jobs(substrate.harness)
        assert len(receiver.deliveries) == 1
        await decide(substrate)
        await run_due_jobs(substrate.harness)
        assert await substrate.call("outbox_target_delete", capability="record_decision") == {"deleted": True}
        substrate.harness.clock.advance(3600)
        await run_due_jobs(substrate.harness)
        assert len(receiver.deliveries) == 2
    states = [each["state"] for each in (await substrate.call("outbox"))["outbox"]]
    assert states == ["cancelled", "cancelled"]


async def test_a_target_of_an_app_hears_only_of_what_that_app_proposed(substrate: Substrate) -> None:
    app_id = await substrate.harness.create_app_row(substrate.owner.organisation_id)
    async with start_receiver() as receiver:
        await register(substrate, receiver.url, source_app_id=app_id)
        await decide(substrate)
        await run_due_jobs(substrate.harness)
    assert (receiver.deliveries, (await substrate.call("outbox"))["outbox"]) == ([], [])


async def test_the_secret_is_never_shown_and_not_readable_in_the_database(substrate: Substrate) -> None:
    first = await register(substrate, "https://example.com/a")
    second = await register(substrate, "https://example.com/b")
    (target,) = (await substrate.call("outbox_targets"))["targets"]
    assert target == second == {**first, "webhook_url": "https://example.com/b"}
    assert set(target) == {"capability", "webhook_url", "source_app_id", "created_at", "updated_at"}
    assert SECRET.encode() not in substrate.harness.read_database()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"signing_secret": "short"}, 400),
        ({"webhook_url": "ftp://example.com"}, 400),
        ({"webhook_url": "http://169.254.169.254/latest"}, 400),
        ({"webhook_url": "http://[::ffff:10.0.0.1]/"}, 400),
        ({"webhook_url": "http://0x0a000001/"}, 400),
        ({"capability": "fly"}, 400),
    ],
)
async def test_a_target_that_must_not_be_is_refused(substrate: Substrate, change: dict[str, str], status: int) -> None:
    target = {"capability": "record_decision", "webhook_url": "https://example.com", "signing_secret": SECRET}
    with pytest.raises(BaobabError) as refusal:
        await substrate.call("outbox_target_put", **{**target, **change})
    assert refusal.value.status in (status, 403)
    assert (await substrate.call("outbox_targets"))["targets"] == []


async def test_a_private_address_behind_a_name_is_never_reached_and_given_up_at_once(substrate: Substrate) -> None:
    # The name leads to ::1 or 127.0.0.1, of which only the latter is allowed here, and no such port answers.
    await register(substrate, "http://localhost:1/")
    await decide(substrate)
    await run_due_jobs(substrate.harness)
    row = await find_row(substrate)
    assert (row["last_status"], row["delivered_at"]) == (None, None)
    assert row["last_error"].startswith("EGRESS_")
