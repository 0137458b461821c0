"""Bots of Recall.ai: its wire, its webhooks in any order, and what they cost."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.context import RequestContext
from baobab.tools.core.limits.credits import BudgetExhausted, Spender
from tests.clock import FixedClock
from tests.people import get_first_organisation
from tests.tools.ai.meetings.conftest import MEETING, MeetingBaobab, open_meetings
from tests.tools.ai.meetings.fake_provider import KEY
from tests.tools.ai.meetings.fake_recall import SECRET, FakeRecall, sign_webhook, start_recall

HOOK = "/v1/ai/meetings/_hooks/recall"
SECONDS = 1234
RECORDING, TRANSCRIPTION = 171_388_889, 51_416_667
"""Nano-dollars for 1234 seconds: 0.50 and 0.15 dollars an hour, rounded to the nearest."""


class LiveBaobab(MeetingBaobab):
    fake: FakeRecall
    app: str

    async def set_allowance(self, nanos: int) -> None:
        await self.application.services.part(Credits).set_terms(await get_first_organisation(self), allowance=nanos)

    async def send(self, event: dict[str, Any], **options: Any) -> int:
        request = sign_webhook(event, self.clock.now(), **options)
        return (await self.client.post(HOOK, **request)).status_code

    async def start_live(self, **body: Any) -> tuple[str, str]:
        """A bot that has been sent, by our id and the provider's."""
        bot = await self.start(self.app, **body)
        await self.advance()
        return bot["id"], list(self.fake.bots)[-1]

    async def join(self, provider_id: str) -> list[dict[str, Any]]:
        """Brings a bot into the call, and returns the webhooks of it."""
        events = []
        for code in ("joining_call", "in_waiting_room", "in_call_not_recording", "in_call_recording"):
            events.append(self.fake.move(provider_id, code))
            self.clock.advance(1)
        self.clock.advance(-1)
        return events

    async def hang_up(self, provider_id: str) -> list[dict[str, Any]]:
        self.clock.advance(SECONDS)
        return [
            self.fake.move(provider_id, "call_ended", "call_ended_by_host"),
            self.fake.move(provider_id, "done"),
            self.fake.finish(provider_id, "transcript"),
        ]


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[LiveBaobab]:
    clock = FixedClock()
    async with start_recall(clock) as fake:
        variables = {"BAOBAB_MEETINGS_PROVIDER": "recall", "BAOBAB_MEETINGS_KEY": KEY, "BAOBAB_MEETINGS_URL": fake.url}
        variables["BAOBAB_MEETINGS_WEBHOOK_SECRET"] = SECRET
        async with open_meetings(tmp_path, clock=clock, **variables) as opened_one:
            baobab = LiveBaobab(opened_one.application, opened_one.client, clock=clock)
            baobab.fake = fake
            baobab.app = await baobab.create_app()
            yield baobab


async def test_a_bot_is_ordered_in_the_words_of_the_provider(live: LiveBaobab) -> None:
    leave = {"waitingRoomTimeoutSec": 60, "everyoneLeftTimeoutSec": 5}
    bot_id, _ = await live.start_live(metadata={"crm": "42"}, botName="Scribe", automaticLeave=leave)
    [body] = live.fake.creations
    assert body == {
        "meeting_url": MEETING,
        "bot_name": "Scribe",
        "metadata": {"crm": "42", "bb_bot_id": bot_id, "bb_attempt": "0"},
        "recording_config": {
            "retention": {"type": "timed", "hours": 168},
            "video_mixed_mp4": {},
            "transcript": {"provider": {"meeting_captions": {}}},
        },
        "automatic_leave": {"waiting_room_timeout": 60, "everyone_left_timeout": {"timeout": 5}},
    }


async def test_webhooks_bring_a_bot_through_its_states_and_its_seconds_are_charged_exactly(live: LiveBaobab) -> None:
    spent_nanos = await live.read_spent()
    bot_id, provider_id = await live.start_live()
    assert await live.read_reserved() > 0
    codes = {"joining_call": "joining", "in_waiting_room": "waiting_room", "in_call_not_recording": "in_call"}
    for code, status in {**codes, "in_call_recording": "recording"}.items():
        assert await live.send(live.fake.move(provider_id, code)) == 200
        assert (await live.read(live.app, bot_id))["status"] == status
        await live.advance(1)
    live.clock.advance(-1)
    events = await live.hang_up(provider_id)
    for event in events:
        assert await live.send(event) == 200
    await live.advance()
    bot = await live.read(live.app, bot_id)
    assert (bot["status"], bot["reason"]) == ("done", "The host ended the call.")
    assert (bot["durationSeconds"], bot["chargedUsd"]) == (SECONDS, 0.222805556)
    assert "simulated" not in bot
    assert await live.read_spent() - spent_nanos == RECORDING + TRANSCRIPTION
    assert await live.read_reserved() == 0
    rows = {row["dimension"]: row["usd_charged"] for row in await live.usage(live.app)}
    assert rows == {"recording": "0.171388889", "transcription": "0.051416667"}
    # Addresses are asked for anew each time.
    live.clock.advance(60)
    assert (await live.read(live.app, bot_id))["recordingUrl"] == bot["recordingUrl"]
    live.fake.finish(provider_id, "video_mixed")
    assert (await live.read(live.app, bot_id))["recordingUrl"] != bot["recordingUrl"]
    assert bot["participants"] == ["Grace Hopper", "Alan Turing"]
    passages = (await live.client.get(bot["transcriptUrl"])).json()
    word = {"text": "Ship it.", "start": 1.5, "end": 2.25}
    assert passages == [{"participant": {"id": "100", "name": "Grace Hopper"}, "words": [word]}]


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_any_order_loss_and_repetition_of_webhooks_leaves_the_exact_charge(live: LiveBaobab, data: Any) -> None:
    spent_nanos = await live.read_spent()
    _, provider_id = await live.start_live()
    events = [*await live.join(provider_id), *await live.hang_up(provider_id)]
    deliveries = data.draw(st.lists(st.sampled_from(range(len(events))), max_size=12))
    for index in deliveries:
        assert await live.send(events[index]) == 200
        if data.draw(st.booleans()):
            await live.advance()
    # What no webhook has said is asked for.
    await live.advance(120)
    await live.advance(120)
    assert await live.read_spent() - spent_nanos == RECORDING + TRANSCRIPTION
    assert await live.read_reserved() == 0


async def test_a_transcript_that_comes_after_the_end_is_charged_then_and_once(live: LiveBaobab) -> None:
    spent_nanos = await live.read_spent()
    bot_id, provider_id = await live.start_live()
    await live.join(provider_id)
    live.clock.advance(SECONDS)
    for event in (live.fake.move(provider_id, "call_ended"), live.fake.move(provider_id, "done")):
        await live.send(event)
    await live.advance()
    assert await live.read_spent() - spent_nanos == RECORDING
    assert (await live.read(live.app, bot_id))["chargedUsd"] is None
    live.clock.advance(7200)
    event = live.fake.finish(provider_id, "transcript")
    for _ in range(3):
        await live.send(event)
        await live.advance(1)
    assert await live.read_spent() - spent_nanos == RECORDING + TRANSCRIPTION


@pytest.mark.parametrize("ending", ["failed", "never"])
async def test_a_transcript_that_there_is_not_is_not_charged(live: LiveBaobab, ending: str) -> None:
    spent_nanos = await live.read_spent()
    bot_id, provider_id = await live.start_live()
    await live.join(provider_id)
    live.clock.advance(SECONDS)
    live.fake.move(provider_id, "call_ended")
    live.fake.move(provider_id, "done")
    if ending == "failed":
        live.fake.finish(provider_id, "transcript", "failed")
    await live.advance(200)
    await live.advance(25 * 3600)
    assert await live.read_spent() - spent_nanos == RECORDING
    assert await live.read_reserved() == 0
    assert (await live.read(live.app, bot_id))["chargedUsd"] == 0.171388889


async def test_a_bot_that_failed_is_charged_for_what_it_had_recorded_and_for_nothing_else(live: LiveBaobab) -> None:
    spent_nanos = await live.read_spent()
    _, denied_id = await live.start_live()
    live.fake.move(denied_id, "fatal", "bot_kicked_from_waiting_room")
    _, kicked_id = await live.start_live(transcript=False)
    await live.join(kicked_id)
    live.clock.advance(SECONDS)
    live.fake.move(kicked_id, "fatal", "bot_kicked_from_call")
    await live.advance(30)
    await live.advance(30)
    assert await live.read_spent() - spent_nanos == RECORDING
    assert await live.read_reserved() == 0


@pytest.mark.parametrize("family", ["webhook", "svix"])
async def test_webhooks_are_taken_under_both_families_of_headers(live: LiveBaobab, family: str) -> None:
    bot_id, provider_id = await live.start_live()
    assert await live.send(live.fake.move(provider_id, "in_waiting_room"), family=family) == 200
    assert (await live.read(live.app, bot_id))["status"] == "waiting_room"


async def test_a_webhook_that_is_not_signed_now_by_the_provider_changes_nothing(live: LiveBaobab) -> None:
    bot_id, provider_id = await live.start_live()
    event = live.fake.move(provider_id, "in_waiting_room")
    request = sign_webhook(event, live.clock.now())
    headers = {name: value for name, value in request["headers"].items() if name != "webhook-signature"}
    content = request["content"].replace(b"in_waiting_room", b"in_call_recording")
    for wrong in (
        {**request, "headers": headers},
        {**request, "content": content},
        sign_webhook(event, live.clock.now(), secret="whsec_YW5vdGhlciBzZWNyZXQ="),
    ):
        answer = await live.client.post(HOOK, **wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_signature")
    live.clock.advance(301)
    assert (await live.client.post(HOOK, **request)).status_code == 401
    assert (await live.read(live.app, bot_id))["status"] == "joining"


async def test_webhooks_of_other_bots_and_unknown_states_change_nothing(live: LiveBaobab) -> None:
    bot_id, provider_id = await live.start_live()
    await live.send(live.fake.move(provider_id, "in_waiting_room"))
    live.clock.advance(1)
    await live.send(live.fake.move(provider_id, "in_call_dancing"))
    foreign = {"event": "bot.done", "data": {"data": {"code": "done"}, "bot": {"id": "recall-99", "metadata": {}}}}
    for event in (foreign, {"event": "ping"}, {"event": "bot.done", "data": None}):
        assert await live.send(event) == 200
    assert (await live.read(live.app, bot_id))["status"] == "waiting_room"


@pytest.mark.parametrize(
    ("status", "content"),
    [(507, {"code": "adhoc_pool_depleted"}), (429, {"detail": "Throttled."}), (503, {}), (409, {})],
)
async def test_a_bot_stays_joining_while_the_provider_has_none_free(
    live: LiveBaobab, status: int, content: Any
) -> None:
    live.fake.refusals = [(status, {"Retry-After": "30"}, content)] * 2
    bot = await live.start(live.app)
    await live.advance()
    assert (len(live.fake.creations), (await live.read(live.app, bot["id"]))["status"]) == (1, "joining")
    await live.advance(29)
    assert len(live.fake.creations) == 1
    await live.advance(1)
    await live.advance(30)
    assert (len(live.fake.creations), len(live.fake.bots)) == (3, 1)


async def test_a_bot_for_which_there_was_none_free_for_an_hour_is_given_up(live: LiveBaobab) -> None:
    live.fake.refusals = [(507, {"Retry-After": "600"}, {})] * 100
    bot = await live.start(live.app)
    for _ in itertools.repeat(None, 40):
        await live.advance(120)
    bot = await live.read(live.app, bot["id"])
    assert (bot["status"], bot["retryable"], bot["reason"]) == ("fatal", True, "The provider answered 507.")
    assert await live.read_reserved() == 0


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (400, {"meeting_url": ["Not a meeting."]}, "meeting_url: Not a meeting."),
        (400, {"code": "teams_blacklisted_tenant", "detail": "Blocked."}, "Blocked."),
        (401, {"detail": "x"}, "The provider of meetings does not accept this server's key."),
        (402, {"detail": "x"}, "This server's account at the provider of meetings has no credits left."),
    ],
)
async def test_what_the_provider_refuses_for_good_is_told_in_words_and_not_tried_again(
    live: LiveBaobab, status: int, content: Any, reason: str
) -> None:
    live.fake.refusals = [(status, {}, content)] * 2
    bot = await live.start(live.app)
    await live.advance(600)
    bot = await live.read(live.app, bot["id"])
    assert (bot["status"], bot["reason"], bot["retryable"]) == ("fatal", reason, False)
    assert len(live.fake.creations) == 1


async def test_a_bot_whose_creation_had_no_answer_is_found_and_not_sent_twice(live: LiveBaobab) -> None:
    live.fake.lost_answers = 1
    bot = await live.start(live.app)
    await live.advance()
    await live.advance(60)
    assert len(live.fake.bots) == 1
    live.fake.move("recall-0", "in_waiting_room")
    await live.advance(60)
    assert (await live.read(live.app, bot["id"]))["status"] == "waiting_room"


async def test_only_a_failure_that_passes_sends_another_bot(live: LiveBaobab) -> None:
    bot_id, first = await live.start_live()
    live.fake.move(first, "fatal", "failed_to_launch_in_time")
    await live.advance(30)
    await live.advance(30)
    assert [body["metadata"]["bb_attempt"] for body in live.fake.creations] == ["0", "1"]
    await live.send({"event": "bot.fatal", "data": {"data": {"code": "fatal"}, "bot": {"id": first, "metadata": {}}}})
    assert (await live.read(live.app, bot_id))["status"] == "joining"
    live.fake.move("recall-1", "fatal", "meeting_not_found")
    await live.advance(60)
    assert (await live.read(live.app, bot_id))["reason"] == "There is no meeting at this address."
    assert len(live.fake.creations) == 2


async def test_a_crash_between_a_charge_and_its_row_leaves_both_once(live: LiveBaobab) -> None:
    spent_nanos = await live.read_spent()
    _, provider_id = await live.start_live()
    await live.join(provider_id)
    await live.hang_up(provider_id)
    credits_ = live.application.services.credits
    with pytest.MonkeyPatch.context() as patch:
        settle = credits_.settle

        async def settle_and_stop(*arguments: Any, **options: Any) -> int:
            await settle(*arguments, **options)
            raise DatabaseUnavailable("the process has ended here")

        patch.setattr(credits_, "settle", settle_and_stop)
        await live.advance(60)
        assert await live.usage(live.app) == []
    for _ in range(3):
        await live.advance(60)
    rows = {row["dimension"]: row["usd_charged"] for row in await live.usage(live.app)}
    assert rows == {"recording": "0.171388889", "transcription": "0.051416667"}
    assert await live.read_spent() - spent_nanos == RECORDING + TRANSCRIPTION


async def test_an_outage_of_the_provider_ends_no_bot(live: LiveBaobab) -> None:
    bot_id, provider_id = await live.start_live()
    await live.join(provider_id)
    live.fake.outages = [500, 502, 401, 429]
    for _ in range(6):
        await live.advance(300)
    assert (await live.read(live.app, bot_id))["status"] == "recording"


async def test_without_credits_no_bot_is_sent(live: LiveBaobab) -> None:
    await live.set_allowance(0)
    answer = await live.request("POST", live.path(live.app), json={"meetingUrl": MEETING})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (402, "insufficient_credits", "billing_error")
    assert (error["balance_usd"], error["credit_floor_usd"]) == (0, 0)
    assert live.fake.creations == []


async def send_for_run(live: LiveBaobab, daily_budget: int) -> Any:
    """Sends a bot as a run of an agent does whose budget of the day is so many nano-dollars."""
    account_id = (await live.client.get("/platform/me", headers=live.owner)).json()["user"]["id"]
    caller = Account(account_id, await get_first_organisation(live))
    context = RequestContext("agent", "run:1", spender=Spender("run", (("agent", daily_budget),)))
    arguments = {"app_id": live.app, "meetingUrl": MEETING}
    return await live.application.registry.call("meetings_start", arguments, caller, context)


async def test_a_bot_of_an_agent_is_paid_from_the_budget_of_its_day(live: LiveBaobab) -> None:
    # The first ten minutes are reserved at 0.11 dollars.
    with pytest.raises(BudgetExhausted):
        await send_for_run(live, 50_000_000)
    assert live.fake.creations == []
    # Enough for the first ten minutes, and not for the second.
    await send_for_run(live, 150_000_000)
    await live.advance()
    [provider_id] = live.fake.bots
    await live.join(provider_id)
    for _ in range(20):
        await live.advance(30)
    assert live.fake.left[:1] == [provider_id]


async def test_an_address_of_a_recording_that_is_a_script_is_not_passed_on(live: LiveBaobab) -> None:
    bot_id, provider_id = await live.start_live()
    await live.join(provider_id)
    await live.hang_up(provider_id)
    await live.advance(60)
    for recording in live.fake.bots[provider_id]["recordings"]:
        recording["media_shortcuts"]["video_mixed"]["data"]["download_url"] = "javascript:alert(1)"
    assert (await live.read(live.app, bot_id))["recordingUrl"] is None


async def test_when_the_credits_run_out_the_bot_leaves_and_what_it_recorded_is_charged(live: LiveBaobab) -> None:
    # Enough for the first ten minutes and the second, and not for the third.
    await live.set_allowance(220_000_000)
    bot_id, provider_id = await live.start_live()
    await live.join(provider_id)
    for _ in range(40):
        await live.advance(30)
    assert live.fake.left[:1] == [provider_id]
    live.fake.move(provider_id, "call_ended", "bot_received_leave_call")
    live.fake.move(provider_id, "done")
    live.fake.finish(provider_id, "transcript")
    await live.advance(60)
    bot = await live.read(live.app, bot_id)
    assert (bot["status"], bot["durationSeconds"]) == ("done", 1200)
    assert bot["reason"] == "The organisation's credits ran out, so the bot left the call."
    assert await live.read_reserved() == 0
