"""Webhooks: whoever asked for it is told that a run has ended, or waits for a decision."""

import base64
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from baobab import composition
from baobab.settings import load_settings
from baobab.tools.core.auth.callers import Account
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.jobs import run_due_jobs
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.ai.conftest import serve_app
from tests.tools.conftest import ToolHarness

SAY = build_graph(
    {
        "say": {"type": "llm", "input_template": "/say Hello.", "output_key": "answer"},
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    ("say", "done"),
)
INTERRUPT = {"source": "builtin", "name": "interrupt"}
ASK = build_graph(
    {
        "ask": {"type": "tool", "tool_ref": INTERRUPT, "args_template": {"reason": "Go on?"}, "output_key": "answer"},
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    ("ask", "done"),
    tools={"builtin": ["interrupt"]},
)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ToolHarness]:
    """One that may call this machine, where webhooks are received; nothing else that is private."""
    clock = FixedClock()
    settings = load_settings({**prepare_data(tmp_path), "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}, data=tmp_path)
    async with composition.open_application(settings, clock=clock) as application:
        yield ToolHarness(application.services, application.registry, clock, tmp_path)
    release_data(tmp_path)


@dataclass
class Delivery:
    headers: dict[str, str]
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)
        return payload

    @property
    def signatures(self) -> list[str]:
        return self.headers.get("webhook-signature", "").split()

    def sign(self, secret: str) -> str:
        """The signature that standardwebhooks.com describes."""
        signed_bytes = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        mac = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed_bytes, "sha256")
        return "v1," + base64.b64encode(mac).decode()


class Receiver:
    """Takes webhooks: refuses as many as it is told to."""

    def __init__(self, refusing: int = 0) -> None:
        self.refusing = refusing
        self.deliveries: list[Delivery] = []
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.deliveries.append(Delivery({name.decode(): value.decode() for name, value in scope["headers"]}, body))
        self.refusing -= 1
        status = 500 if self.refusing >= 0 else 204
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def start_receiver(refusing: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(refusing)
    async with serve_app(receiver) as address:
        receiver.url = f"{address}/told"
        yield receiver


async def run_retries(agency: Agency) -> None:
    """Let the pauses between five attempts pass."""
    for _ in range(6):
        await run_due_jobs(agency.harness)
        agency.harness.clock.advance(20)


async def rotate_secret(agency: Agency, **more: Any) -> str:
    result = await agency.harness.call("agents_webhook_secret_rotate", agency.owner, app_id=agency.app_id, **more)
    secret: str = result["secret"]
    return secret


async def test_a_webhook_that_is_refused_is_sent_again_with_the_same_key_and_event(agency: Agency) -> None:
    agent = await agency.create_agent("say", SAY)
    async with start_receiver(refusing=3) as receiver:
        run = await agency.run_agent("say", webhook_url=receiver.url)
        await run_retries(agency)
    assert len(receiver.deliveries) == 4
    (event_id,) = {each.payload["event_id"] for each in receiver.deliveries}
    for delivery in receiver.deliveries:
        assert delivery.headers["idempotency-key"] == run["id"]
        assert delivery.headers["webhook-id"] == event_id
    payload = receiver.deliveries[0].payload
    assert payload.pop("finished_at")
    run_fields = {"app_id": agency.app_id, "agent": agent["name"], "run_id": run["id"], "event_id": event_id}
    assert payload == {**run_fields, "type": "run.completed", "status": "completed", "output": run["output"]}
    delivery = (await agency.get_run("say", run["id"]))["webhook_delivery"]
    assert (delivery["attempts"], delivery["status"], delivery["event_id"]) == (4, 204, event_id)
    assert delivery["delivered_at"]


async def test_a_webhook_that_is_never_taken_is_given_up_and_sent_again_when_it_is_asked_for(agency: Agency) -> None:
    await agency.create_agent("ask", ASK)
    async with start_receiver() as receiver:
        run = await agency.run_agent("ask", webhook_url=receiver.url)
        await run_retries(agency)
        # The pause was told.
        receiver.deliveries.clear()
        receiver.refusing = 5
        arguments = {"app_id": agency.app_id, "name": "ask", "id": run["id"]}
        assert (await agency.catch_refusal("agents_runs_webhook", agency.owner, **arguments)).code == "run_under_way"
        await agency.decide("ask", run["id"], approves=False, reason="No.")
        await run_retries(agency)
        assert [each.payload["error"] for each in receiver.deliveries] == [
            {"type": "approval_denied", "message": "No."}
        ] * 5
        given_up = (await agency.get_run("ask", run["id"]))["webhook_delivery"]
        assert (given_up["attempts"], given_up["status"], given_up["delivered_at"]) == (5, 500, None)
        await agency.harness.call("agents_runs_webhook", agency.owner, **arguments)
        await run_retries(agency)
        await agency.harness.call("agents_runs_webhook", agency.owner, **arguments)
        await run_retries(agency)
    assert len(receiver.deliveries) == 7
    assert len({each.headers["webhook-id"] for each in receiver.deliveries}) == 1
    assert (await agency.get_run("ask", run["id"]))["webhook_delivery"]["delivered_at"]


async def test_a_run_that_nobody_asked_to_be_told_of_has_no_webhook_to_send(agency: Agency) -> None:
    await agency.create_agent("say", SAY)
    run = await agency.run_agent("say")
    arguments = {"app_id": agency.app_id, "name": "say", "id": run["id"]}
    assert (await agency.catch_refusal("agents_runs_webhook", agency.owner, **arguments)).code == "run_without_webhook"


async def test_whoever_cancels_is_told_by_webhook_too(agency: Agency) -> None:
    await agency.create_agent("ask", ASK)
    async with start_receiver() as receiver:
        run = await agency.run_agent("ask", webhook_url=receiver.url)
        await agency.harness.call("agents_runs_cancel", agency.owner, app_id=agency.app_id, name="ask", id=run["id"])
        await run_retries(agency)
    last = receiver.deliveries[-1].payload
    assert (last["type"], last["status"]) == ("run.cancelled", "cancelled")


async def test_each_pause_is_told_once_signed_and_with_what_it_waits_for(agency: Agency) -> None:
    twice = build_graph(
        {
            "first": {"type": "tool", "tool_ref": INTERRUPT, "args_template": {"reason": "Go on?"}},
            "second": {"type": "tool", "tool_ref": INTERRUPT, "args_template": {"reason": "Really?"}},
            "done": {"type": "end", "output_template": "done"},
        },
        ("first", "second"),
        ("second", "done"),
        tools={"builtin": ["interrupt"]},
    )
    await agency.create_agent("ask", twice)
    secret = await rotate_secret(agency)
    async with start_receiver(refusing=1) as receiver:
        run = await agency.run_agent("ask", webhook_url=receiver.url)
        await run_retries(agency)
        first, again = receiver.deliveries
        assert (first.payload, first.headers["webhook-id"]) == (again.payload, again.headers["webhook-id"])
        await agency.decide("ask", run["id"])
        await run_retries(agency)
        await agency.decide("ask", run["id"])
        await run_retries(agency)
    second, end = receiver.deliveries[2:]
    pauses = await agency.list_events("ask", run["id"], "run_paused")
    for delivery, pause in zip((first, second), pauses, strict=True):
        payload = delivery.payload
        assert delivery.signatures == [delivery.sign(secret)]
        assert delivery.headers["idempotency-key"] == delivery.headers["webhook-id"] == payload.pop("event_id")
        (approval,) = payload.pop("approvals")
        assert approval["approval_id"] == pause["payload"]["approval_id"]
        assert approval["expires_at"]
        run_fields = {"app_id": agency.app_id, "agent": "ask", "run_id": run["id"], "finished_at": None}
        assert payload == {**run_fields, "type": "run.paused", "status": "paused"}
    assert (end.payload["type"], end.payload["output"]) == ("run.completed", "done")
    assert len({each.headers["idempotency-key"] for each in receiver.deliveries}) == 3


async def test_a_pause_that_was_not_taken_is_not_told_after_the_end(agency: Agency) -> None:
    await agency.create_agent("ask", ASK)
    async with start_receiver(refusing=1) as receiver:
        run = await agency.run_agent("ask", webhook_url=receiver.url)
        await agency.decide("ask", run["id"])
        await run_retries(agency)
    types = [each.payload["type"] for each in receiver.deliveries]
    assert types.count("run.completed") >= 1
    assert types[-1] == "run.completed"
    assert types.count("run.paused") == 1


async def test_a_webhook_goes_to_no_private_address(agency: Agency) -> None:
    await agency.create_agent("say", SAY)
    async with start_receiver() as receiver:
        port = receiver.url.removesuffix("/told").rpartition(":")[2]
        for host in ("[::1]", "127.0.0.2", "0x7f000002", "169.254.169.254"):
            run = await agency.run_agent("say", webhook_url=f"http://{host}:{port}/", input={"host": host})
            assert run["status"] == "completed"
        await run_retries(agency)
    assert receiver.deliveries == []
    assert (await agency.get_run("say", run["id"]))["webhook_delivery"]["status"] is None


async def test_webhooks_are_signed_with_the_secret_and_for_a_time_with_the_earlier_one(agency: Agency) -> None:
    await agency.create_agent("say", SAY)
    async with start_receiver() as receiver:

        async def deliver_webhook() -> Delivery:
            await agency.run_agent("say", webhook_url=receiver.url)
            await run_due_jobs(agency.harness)
            return receiver.deliveries[-1]

        assert (await deliver_webhook()).signatures == []
        first = await rotate_secret(agency)
        delivery = await deliver_webhook()
        assert delivery.signatures == [delivery.sign(first)]
        assert delivery.headers["webhook-timestamp"] == str(int(agency.harness.clock.time()))
        second = await rotate_secret(agency, overlap_seconds=60)
        delivery = await deliver_webhook()
        assert delivery.signatures == [delivery.sign(second), delivery.sign(first)]
        agency.harness.clock.advance(60)
        delivery = await deliver_webhook()
        assert delivery.signatures == [delivery.sign(second)]
        third = await rotate_secret(agency, overlap_seconds=0)
        delivery = await deliver_webhook()
        assert delivery.signatures == [delivery.sign(third)]
    assert len({first, second, third}) == 3


async def test_a_secret_is_shown_once_and_kept_sealed(agency: Agency) -> None:
    arguments = {"app_id": agency.app_id}
    unsigned_result = await agency.harness.call("agents_webhook_secret_get", agency.owner, **arguments)
    assert unsigned_result == {"made_at": None, "earlier_until": None}
    secret = await rotate_secret(agency)
    result = await agency.harness.call("agents_webhook_secret_get", agency.owner, **arguments)
    assert (result["made_at"], result["earlier_until"]) == (agency.harness.clock.now(), None)
    await rotate_secret(agency)
    result = await agency.harness.call("agents_webhook_secret_get", agency.owner, **arguments)
    assert result["earlier_until"] > agency.harness.clock.now()
    stored_bytes = b"".join(path.read_bytes() for path in agency.harness.data.glob("*.db*"))
    assert secret.encode() not in stored_bytes


async def test_the_webhook_of_a_users_run_says_no_more_than_the_user_may_read(agency: Agency) -> None:
    think = {"type": "llm", "model": "nobody/has-it", "input_template": "Hello.", "output_key": "answer"}
    spec = build_graph({"think": think, "done": {"type": "end", "output_template": "done"}}, ("think", "done"))
    await agency.create_agent("think", spec, visibility="authenticated")
    callers: list[tuple[Any, bool]] = [(agency.end_user("ada"), False), (agency.owner, True)]
    async with start_receiver() as receiver:
        for caller, is_quoted in callers:
            run = await agency.run_agent("think", caller, webhook_url=receiver.url)
            await run_due_jobs(agency.harness)
            error = receiver.deliveries[-1].payload["error"]
            assert (error["type"], error == run["error"]) == ("model_failed", is_quoted)
            assert isinstance(caller, Account) == ("quotes" in error)
