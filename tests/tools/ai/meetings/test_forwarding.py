"""Webhooks out: signed, sent again for a day, listed, and sent again by hand."""

import base64
import contextlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
import svix
from aiohttp import web
from sqlalchemy import select

from baobab.storage.clock import SystemClock
from baobab.tools.ai.meetings.tables import meeting_settings
from tests.clock import FixedClock
from tests.tools.ai.meetings.conftest import MEETING, MeetingBaobab, open_meetings

EVENTS = ["bot.in_call_recording", "bot.done", "recording.done", "transcript.done"]


@dataclass
class Receiver:
    url: str = ""
    statuses: list[int] = field(default_factory=list)
    """Of the next answers; 200 when there are none left."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((headers, await request.read()))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)

    @property
    def events(self) -> list[str]:
        return [headers["x-bb-event"] for headers, _ in self.requests]


@contextlib.asynccontextmanager
async def start_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with start_receiver() as started_one:
        yield started_one


async def set_webhook(meetings: MeetingBaobab, app: str | None, url: str, **body: Any) -> Any:
    answer = await meetings.request("PUT", meetings.path(app, "webhook"), json={"forward_url": url, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def list_deliveries(meetings: MeetingBaobab, app: str | None) -> Any:
    return (await meetings.request("GET", meetings.path(app, "deliveries"))).json()["deliveries"]


async def test_the_events_of_an_apps_bot_are_sent_once_each_and_signed(
    meetings: MeetingBaobab, app: str, receiver: Receiver
) -> None:
    webhook = await set_webhook(meetings, app, receiver.url)
    assert webhook["secret"].startswith("wsec_")
    assert (webhook["ok"], webhook["app_id"], webhook["forward_url"]) == (True, app, receiver.url)
    bot = await meetings.start(app, metadata={"crm": "42"})
    for _ in range(40):
        await meetings.advance(1)
    # Those that follow from one change have no order among them.
    assert sorted(receiver.events) == sorted(EVENTS)
    for headers, body in receiver.requests:
        signature = base64.b64encode(hmac.digest(webhook["secret"].encode(), body, sha256)).decode()
        assert headers["x-bb-signature"] == f"v1,{signature}"
        assert headers["content-type"] == "application/json"
        assert "x-bb-key-id" not in headers
        # As standardwebhooks.com has it.
        key = base64.b64decode(webhook["webhook_secret"].removeprefix("whsec_"))
        assert len(key) == 32
        content = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
        signature = base64.b64encode(hmac.digest(key, content, sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{signature}"
    sent_events = {event["event"]: event for event in (json.loads(body) for _, body in receiver.requests)}
    done_event = sent_events["bot.done"]
    assert done_event["data"]["bot"] == {"id": bot["id"], "metadata": {"crm": "42"}}
    assert done_event["data"]["data"].keys() == {"code", "sub_code", "updated_at"}
    assert sent_events["transcript.done"]["data"]["transcript"]["metadata"] == {"crm": "42"}


async def test_events_of_the_gateway_name_the_key_that_signs_them(meetings: MeetingBaobab, receiver: Receiver) -> None:
    first = await set_webhook(meetings, None, receiver.url)
    assert (await set_webhook(meetings, None, receiver.url))["secret"] is None
    second = await set_webhook(meetings, None, receiver.url, rotate_secret=True)
    assert second["secret"] not in (None, first["secret"])
    webhook = (await meetings.request("GET", meetings.path(None, "webhook"))).json()
    assert (webhook["forward_url"], webhook["key_id"]) == (receiver.url, second["secret"][:16])
    await meetings.start(None, meetingUrl=f"{MEETING}?simulate=denied")
    await meetings.advance(10)
    assert receiver.events == ["bot.fatal"]
    headers, body = receiver.requests[0]
    assert headers["x-bb-key-id"] == second["secret"][:16]
    code = json.loads(body)["data"]["data"]
    assert (code["code"], code["sub_code"]) == ("fatal", "bot_kicked_from_waiting_room")


@pytest.mark.parametrize("verifier", [svix.Webhook, standardwebhooks.Webhook])
async def test_receivers_that_use_the_libraries_of_others_verify_what_is_sent(
    tmp_path: Path, receiver: Receiver, verifier: Any
) -> None:
    # The libraries look at the time, too.
    async with open_meetings(tmp_path, FixedClock(SystemClock().time())) as meetings:
        app = await meetings.create_app()
        for owner in (app, None):
            webhook = await set_webhook(meetings, owner, receiver.url)
            await meetings.start(owner, meetingUrl=f"{MEETING}?simulate=denied")
            await meetings.advance(10)
            headers, body = receiver.requests[-1]
            judge = verifier(webhook["webhook_secret"])
            judge.verify(body, headers)
            with pytest.raises(Exception, match="signature"):
                judge.verify(body + b" ", headers)


def verify_request_from_recall(secret: str, headers: dict[str, str], payload: str) -> None:
    """What the page of Recall.ai about the verification of its requests has a receiver do, of either generation of its
    headers. Raises AssertionError for a request that is not signed with the secret.
    """
    event_id, timestamp, signatures = (
        headers.get(f"webhook-{name}") or headers.get(f"svix-{name}") for name in ("id", "timestamp", "signature")
    )
    assert secret.startswith("whsec_")
    assert event_id
    assert timestamp
    assert signatures
    key = base64.b64decode(secret.removeprefix("whsec_"))
    own_signature = hmac.digest(key, f"{event_id}.{timestamp}.{payload}".encode(), sha256)
    versions = (signature.partition(",") for signature in signatures.split(" "))
    is_signed = any(
        version == "v1" and hmac.compare_digest(base64.b64decode(text), own_signature) for version, _, text in versions
    )
    assert is_signed, "no signature is of this secret"


async def test_a_handler_that_was_written_for_recall_takes_the_events_of_apps_and_of_the_gateway_unchanged(
    meetings: MeetingBaobab, app: str, receiver: Receiver
) -> None:
    for owner in (app, None):
        receiver.requests.clear()
        secret = (await set_webhook(meetings, owner, receiver.url))["webhook_secret"]
        bot = await meetings.start(owner, metadata={"crm": "42"})
        for _ in range(40):
            await meetings.advance(1)
        heard_codes = {}
        for headers, body in receiver.requests:
            verify_request_from_recall(secret, headers, body.decode())
            with pytest.raises(AssertionError, match="no signature"):
                verify_request_from_recall(secret, headers, body.decode() + " ")
            message = json.loads(body)
            # What its pages read of a message about a bot, a recording and a transcript.
            assert message["data"]["bot"] == {"id": bot["id"], "metadata": {"crm": "42"}}
            heard_codes[message["event"]] = message["data"]["data"]["code"]
            kind, _, outcome = message["event"].partition(".")
            if kind != "bot":
                assert message["data"][kind]["id"]
                assert message["data"]["data"]["code"] == outcome
        assert sorted(heard_codes) == sorted(EVENTS)
        assert heard_codes["bot.done"] == "done"


async def test_an_event_that_is_not_taken_is_sent_again_for_a_day_and_then_by_hand(
    meetings: MeetingBaobab, app: str, receiver: Receiver
) -> None:
    webhook = await set_webhook(meetings, app, receiver.url)
    receiver.statuses = [500] * 100
    await meetings.start(app, meetingUrl=f"{MEETING}?simulate=denied")
    await meetings.advance(10)
    for pause in (5, 300, 1800, 7200, 18_000, 36_000, 21_600, 86_400):
        await meetings.advance(pause)
    [delivery] = await list_deliveries(meetings, app)
    assert (delivery["status"], delivery["attempts"], delivery["answer_status"]) == ("failed", 8, 500)
    assert len({body for _, body in receiver.requests}) == 1
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
    receiver.statuses = []
    path = meetings.path(app, "deliveries", delivery["id"], "resend")
    assert (await meetings.request("POST", path)).status_code == 202
    await meetings.advance()
    [delivery] = await list_deliveries(meetings, app)
    assert (delivery["status"], delivery["error"]) == ("delivered", None)
    async with meetings.application.services.database.reading() as connection:
        stored_secret = (await connection.execute(select(meeting_settings.c.secret))).scalar_one()
    assert webhook["secret"] not in stored_secret


async def test_nothing_is_sent_to_an_address_inside_the_network(meetings: MeetingBaobab, app: str) -> None:
    for url in ("http://10.0.0.1/hook", "ftp://example.com/", "http://169.254.169.254/"):
        answer = await meetings.request("PUT", meetings.path(app, "webhook"), json={"forward_url": url})
        assert (answer.status_code, answer.json()["error"]) == (400, "Invalid request"), url
        assert answer.json()["details"][0]["field"] == "forward_url"
