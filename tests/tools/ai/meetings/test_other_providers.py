"""Bots of Attendee and Vexa, each against a fake of its public documents: states, webhooks, errors and charges."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jsonschema_rs
import pytest

from tests.clock import FixedClock
from tests.tools.ai.meetings import fake_attendee, fake_vexa
from tests.tools.ai.meetings.conftest import MEETING, MeetingBaobab, open_meetings
from tests.tools.ai.meetings.fake_attendee import FakeAttendee
from tests.tools.ai.meetings.fake_provider import KEY, FakeProvider, start_fake
from tests.tools.ai.meetings.fake_vexa import FakeVexa

SECONDS = 1234
RECORDING, TRANSCRIPTION = 171_388_889, 51_416_667
"""Nano-dollars for 1234 seconds: 0.50 and 0.15 dollars an hour, rounded to the nearest."""
PROVIDERS = ("attendee", "vexa")
VECTORS: Any = json.loads((Path(__file__).parents[3] / "vectors" / "vexa_webhooks.json").read_text())


class OtherBaobab(MeetingBaobab):
    """An installation with one of the providers; moves of its fake return the webhooks that tell them."""

    fake: FakeProvider
    app: str
    joining: Sequence[str]
    ending: Sequence[str]
    price: int
    refusal: ClassVar[dict[str, Any]]

    def sign(self, event: Any) -> dict[str, Any]:
        raise NotImplementedError

    def move(self, number: int, *parts: str) -> Any:
        """Makes something happen to one of the bots, in the order in which they were sent."""
        raise NotImplementedError

    def finish(self, number: int) -> list[Any]:
        raise NotImplementedError

    async def send(self, event: Any, **changes: Any) -> int:
        request = self.sign(event) | changes
        return (await self.client.post(f"/v1/ai/meetings/_hooks/{self.name}", **request)).status_code

    @property
    def name(self) -> str:
        raise NotImplementedError

    def hold_call(self, number: int) -> list[Any]:
        """Brings a bot through a call of 1234 seconds, and returns the webhooks of it."""
        events = []
        for word in self.joining:
            self.clock.advance(1)
            events.append(self.move(number, word))
        self.clock.advance(SECONDS)
        return [*events, *(self.move(number, *word.split()) for word in self.ending), *self.finish(number)]


class AttendeeBaobab(OtherBaobab):
    fake: FakeAttendee
    name = "attendee"
    joining = ("join_requested", "put_in_waiting_room", "joined_meeting", "recording_permission_granted")
    ending = (
        "leave_requested auto_leave_only_participant_in_meeting",
        "left_meeting",
        "post_processing_completed",
    )
    price = RECORDING + TRANSCRIPTION
    refusal: ClassVar[dict[str, Any]] = {"meeting_url": ["Not a meeting."]}

    def sign(self, event: Any) -> dict[str, Any]:
        return fake_attendee.sign(event)

    def move(self, number: int, *parts: str) -> Any:
        return self.fake.move(f"bot_{number}", *parts)

    def finish(self, number: int) -> list[Any]:
        return [self.fake.finish(f"bot_{number}")]


class VexaBaobab(OtherBaobab):
    fake: FakeVexa
    name = "vexa"
    joining = ("joining", "awaiting_admission", "active")
    ending = ("stopping", "completed left_alone")
    price = TRANSCRIPTION
    refusal: ClassVar[dict[str, Any]] = {"detail": "Not a meeting."}

    def sign(self, event: Any) -> dict[str, Any]:
        return fake_vexa.sign(event, self.clock.now())

    def move(self, number: int, *parts: str) -> Any:
        return self.fake.move(number, *parts)

    def finish(self, number: int) -> list[Any]:
        del number
        return []


@pytest.fixture(params=PROVIDERS)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OtherBaobab]:
    clock = FixedClock()
    is_vexa = request.param == "vexa"
    fake: FakeProvider = FakeVexa(clock) if is_vexa else FakeAttendee(clock)
    async with start_fake(fake):
        variables = {"BAOBAB_MEETINGS_PROVIDER": request.param, "BAOBAB_MEETINGS_KEY": KEY}
        secret = fake_vexa.SECRET if is_vexa else fake_attendee.SECRET
        variables |= {"BAOBAB_MEETINGS_URL": fake.url, "BAOBAB_MEETINGS_WEBHOOK_SECRET": secret}
        async with open_meetings(tmp_path, clock=clock, **variables) as opened_one:
            kind = VexaBaobab if is_vexa else AttendeeBaobab
            baobab = kind(opened_one.application, opened_one.client, clock=clock)
            baobab.fake = fake  # type: ignore[assignment]
            baobab.app = await baobab.create_app()
            yield baobab


async def test_a_bot_passes_through_the_states_of_the_contract_and_is_charged_for_what_the_provider_has(
    live: OtherBaobab,
) -> None:
    spent_nanos = await live.read_spent()
    answer = await live.request("POST", live.path(live.app), json={"meetingUrl": MEETING})
    bot_id = answer.json()["id"]
    warnings = answer.headers.get("x-baobab-warnings", "")
    assert ("makes no recordings" in warnings) == (live.name == "vexa")
    await live.advance()
    statuses = []
    for word in live.joining:
        assert await live.send(live.move(0, word)) == 200
        await live.advance(1)
        statuses.append((await live.read(live.app, bot_id))["status"])
    in_call = ["in_call"] if live.name == "attendee" else []
    assert statuses == ["joining", "waiting_room", *in_call, "recording"]
    live.clock.advance(SECONDS - 1)
    for event in [*(live.move(0, *word.split()) for word in live.ending), *live.finish(0)]:
        assert await live.send(event) == 200
    await live.advance()
    bot = await live.read(live.app, bot_id)
    assert (bot["status"], bot["durationSeconds"], bot["participants"]) == ("done", SECONDS, ["Grace Hopper"])
    assert bot["reason"] == "Everybody else had left the call."
    assert (bot["recordingUrl"] is None) == (live.name == "vexa")
    passages = (await live.client.get(bot["transcriptUrl"])).json()
    assert [word["text"] for word in passages[0]["words"]] in (["Ship it."], ["Ship", "it."])
    assert passages[0]["participant"]["name"] == "Grace Hopper"
    assert await live.read_spent() - spent_nanos == live.price
    assert await live.read_reserved() == 0


async def test_a_bot_is_ordered_in_the_words_of_the_provider(live: OtherBaobab) -> None:
    leave = {"waitingRoomTimeoutSec": 60, "inCallNotRecordingTimeoutSec": 5}
    body = {"meetingUrl": MEETING, "metadata": {"crm": "42"}, "botName": "Scribe", "automaticLeave": leave}
    answer = await live.request("POST", live.path(live.app), json=body)
    assert "has no inCallNotRecordingTimeoutSec" in answer.headers["x-baobab-warnings"]
    await live.advance()
    bot_id = answer.json()["id"]
    orders: dict[str, dict[str, Any]] = {
        "attendee": {
            "meeting_url": MEETING,
            "bot_name": "Scribe",
            "metadata": {"crm": "42", "bb_bot_id": bot_id, "bb_attempt": "0"},
            "deduplication_key": f"{bot_id}-0",
            "recording_settings": {"format": "mp4"},
            "automatic_leave_settings": {"waiting_room_timeout_seconds": 60},
        },
        "vexa": {
            "platform": "google_meet",
            "native_meeting_id": "abc-defg-hij",
            "bot_name": "Scribe",
            "transcribe_enabled": True,
            "recording_enabled": False,
            "automatic_leave": {"max_wait_for_admission": 60_000},
        },
    }
    assert live.fake.creations == [orders[live.name]]


async def test_a_bot_that_does_not_get_in_says_why(live: OtherBaobab) -> None:
    bot = await live.start(live.app)
    await live.advance()
    live.move(0, live.joining[0])
    words = {"attendee": "could_not_join_meeting request_to_join_denied", "vexa": "failed awaiting_admission_rejected"}
    event = live.move(0, *words[live.name].split())
    assert await live.send(event) == 200
    await live.advance()
    bot = await live.read(live.app, bot["id"])
    assert (bot["status"], bot["reason"]) == ("fatal", "Somebody refused the bot in the waiting room.")
    assert await live.read_reserved() == 0


@pytest.mark.parametrize("order", ["lost", "reversed", "repeated and late"])
async def test_loss_order_and_repetition_of_webhooks_leave_the_exact_charge(live: OtherBaobab, order: str) -> None:
    spent_nanos = await live.read_spent()
    bot = await live.start(live.app)
    await live.advance()
    events = live.hold_call(0)
    deliveries = {"lost": [], "reversed": events[::-1], "repeated and late": [*events, *events[::-1]]}[order]
    for event in deliveries:
        assert await live.send(event) == 200
        if order == "repeated and late":
            await live.advance(1)
    await live.advance(120)
    await live.advance(120)
    assert (await live.read(live.app, bot["id"]))["durationSeconds"] == SECONDS
    assert await live.read_spent() - spent_nanos == live.price
    assert await live.read_reserved() == 0


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (400, "refused"),
        (401, "The provider of meetings does not accept this server's key."),
        (402, "This server's account at the provider of meetings has no credits left."),
        (429, "joining"),
        (500, "joining"),
        (503, "joining"),
    ],
)
async def test_errors_of_the_provider_are_told_or_waited_for(live: OtherBaobab, status: int, outcome: str) -> None:
    live.fake.refusals = [(status, {"Retry-After": "30"}, live.refusal)]
    bot = await live.start(live.app)
    await live.advance()
    shown_bot = await live.read(live.app, bot["id"])
    if outcome == "joining":
        assert shown_bot["status"] == "joining"
        await live.advance(30)
        assert len(live.fake.creations) == 2
        return
    assert shown_bot["status"] == "fatal"
    assert shown_bot["reason"] == outcome or "Not a meeting." in shown_bot["reason"]
    await live.advance(600)
    assert len(live.fake.creations) == 1
    assert await live.read_reserved() == 0


async def test_lost_and_slow_answers_send_no_second_bot_and_an_outage_ends_none(live: OtherBaobab) -> None:
    live.fake.lost_answers = 1
    bot = await live.start(live.app)
    await live.advance()
    await live.advance(60)
    live.fake.gate.clear()
    live.fake.arrival.clear()
    looking = asyncio.create_task(live.advance(60))
    await live.fake.arrival.wait()
    assert (await live.read(live.app, bot["id"]))["status"] == "joining"
    live.fake.gate.set()
    await looking
    assert len(live.fake.creations) == 1
    live.fake.outages = [500, 502, 401, 429]
    for _ in range(6):
        await live.advance(300)
    live.move(0, live.joining[1])
    await live.advance(60)
    assert (await live.read(live.app, bot["id"]))["status"] == "waiting_room"


async def test_webhooks_that_are_not_signed_or_of_another_change_nothing(live: OtherBaobab) -> None:
    bot = await live.start(live.app)
    await live.advance()
    event = live.move(0, live.joining[1])
    other_event = live.sign({**event, "trigger": "other", "event_type": "other"})
    wrong_parts: list[dict[str, Any]] = [
        {"headers": {}},
        {"headers": other_event["headers"]},
        {"content": other_event["content"]},
    ]
    for changes in wrong_parts:
        assert await live.send(event, **changes) == 401
    for unknown_event in ({"trigger": "ping"}, {"data": None}, {"data": {"meeting": {"id": 9}}, "bot_id": "bot_9"}):
        assert await live.send(unknown_event) == 200
    assert (await live.read(live.app, bot["id"]))["status"] == "joining"


async def test_a_bot_that_is_stopped_is_told_to_leave(live: OtherBaobab) -> None:
    bot = await live.start(live.app)
    await live.advance()
    live.move(0, live.joining[0])
    assert (await live.request("DELETE", live.path(live.app, bot["id"]))).status_code == 204
    await live.advance()
    assert len(live.fake.left) == 1


@pytest.mark.parametrize("live", ["vexa"], indirect=True)
async def test_a_meeting_is_found_after_more_meetings_than_the_provider_lists(live: VexaBaobab) -> None:
    bot = await live.start(live.app)
    await live.advance()
    live.move(0, "active")
    live.fake.meetings += [{**live.fake.meetings[0], "id": number + 1} for number in range(60)]
    await live.advance(60)
    assert (await live.read(live.app, bot["id"]))["status"] == "recording"


@pytest.mark.parametrize("live", ["vexa"], indirect=True)
async def test_webhooks_of_the_providers_own_examples_are_taken_and_the_fakes_have_their_form(live: VexaBaobab) -> None:
    for envelope in VECTORS["envelopes"]:
        assert await live.send(envelope) == 200
    await live.start(live.app)
    await live.advance()
    definitions = VECTORS["schema"]["$defs"]
    form = jsonschema_rs.validator_for({"$defs": definitions, **definitions["Envelope"]})
    signed_form = jsonschema_rs.validator_for({"$defs": definitions, **definitions["SignatureHeaders"]})
    for event in live.hold_call(0):
        form.validate(event)
        request = live.sign(event)
        names = {"content-type": "Content-Type", "x-webhook-signature": "X-Webhook-Signature"}
        names |= {"x-webhook-timestamp": "X-Webhook-Timestamp"}
        signed_form.validate({names.get(name, name): value for name, value in request["headers"].items()})
