"""Bots without a provider: they pass through their states by the clock, and leave real files."""

import wave
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from baobab.runtime.meetings.simulator import SCENES
from tests.jobs import list_unfinished_jobs
from tests.mcp_server.mcp_requests import call_tool, read_refusal
from tests.people import create_key, create_person
from tests.tools.ai.meetings.conftest import MEETING, MeetingBaobab, open_meetings

STATES = ["joining", "waiting_room", "in_call", "recording", "ended", "done"]
UNKNOWN = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"


async def test_a_bot_of_an_app_passes_through_all_states_and_leaves_a_film_and_a_transcript(
    meetings: MeetingBaobab, app: str
) -> None:
    bot = await meetings.start(app, metadata={"crm": "42"}, botName="Scribe")
    assert bot == {
        "id": bot["id"],
        "status": "joining",
        "startedAt": None,
        "completedAt": None,
        "durationSeconds": None,
        "recordingUrl": None,
        "transcriptUrl": None,
        "botName": "Scribe",
        "metadata": {"crm": "42"},
        "participants": [],
        "reason": None,
        "retryable": False,
        "chargedUsd": None,
        "simulated": True,
    }
    assert await meetings.watch(app, bot["id"], 40) == STATES
    answer = await meetings.request("GET", meetings.path(app, bot["id"]))
    assert answer.headers["x-baobab-simulated"] == "true"
    bot = answer.json()
    assert bot["durationSeconds"] == 20
    assert bot["participants"] == ["Ada Lovelace", "Charles Babbage"]
    film = await meetings.client.get(bot["recordingUrl"])
    assert film.headers["content-type"] == "video/mp4"
    assert film.content[4:8] == b"ftyp"
    passages = (await meetings.client.get(bot["transcriptUrl"])).json()
    assert passages[0]["participant"] == {"id": "1", "name": "Ada Lovelace"}
    assert passages[0]["words"][0] == {"text": "Good", "start": 0.0, "end": 0.4}
    transcript = await meetings.request("GET", meetings.path(app, bot["id"], "transcript"))
    assert transcript.json() == {"passages": passages}


async def test_a_bot_of_the_gateway_belongs_to_the_organisation_and_to_no_app(
    meetings: MeetingBaobab, app: str
) -> None:
    assert (await meetings.client.get("/v1/ai/meetings/_status")).json() == {"available": True, "simulated": True}
    bot = await meetings.start(None)
    assert await meetings.watch(None, bot["id"], 40) == STATES
    assert (await meetings.request("GET", meetings.path(app, bot["id"]))).status_code == 404
    listed_bots = (await meetings.request("GET", meetings.path(None))).json()
    assert [each["id"] for each in listed_bots["bots"]] == [bot["id"]]
    assert (await meetings.request("GET", meetings.path(app))).json() == {"bots": [], "nextCursor": None}


async def test_audio_is_left_where_only_audio_was_asked_for(meetings: MeetingBaobab, app: str) -> None:
    bot = await meetings.start(app, recording="audio_only")
    await meetings.advance(40)
    url = (await meetings.read(app, bot["id"]))["recordingUrl"]
    with wave.open(BytesIO((await meetings.client.get(url)).content)) as sound:
        assert sound.getnframes() / sound.getframerate() == 2


async def test_addresses_of_files_end_after_some_minutes_and_are_refused_when_altered(
    meetings: MeetingBaobab, app: str
) -> None:
    bot = await meetings.start(app)
    await meetings.advance(40)
    url = (await meetings.read(app, bot["id"]))["recordingUrl"]
    assert (await meetings.client.get(url.replace("recording", "transcript"))).status_code == 403
    await meetings.advance(1000)
    assert (await meetings.client.get(url)).status_code == 403
    assert (await meetings.client.get((await meetings.read(app, bot["id"]))["recordingUrl"])).status_code == 200


async def test_files_are_gone_seven_days_after_the_call(meetings: MeetingBaobab, app: str) -> None:
    bot = await meetings.start(app)
    await meetings.advance(40)
    meetings.clock.advance(7 * 86_400)
    bot = await meetings.read(app, bot["id"])
    assert (bot["status"], bot["recordingUrl"], bot["transcriptUrl"]) == ("done", None, None)
    transcript = await meetings.request("GET", meetings.path(app, bot["id"], "transcript"))
    assert (transcript.status_code, transcript.json()["error"]["code"]) == (409, "file_not_ready")


async def test_a_simulated_call_shows_its_price_and_is_not_charged(meetings: MeetingBaobab, app: str) -> None:
    spent_nanos = await meetings.read_spent()
    bot = await meetings.start(app, meetingUrl=f"{MEETING}?simulate_seconds=3600")
    await meetings.advance(5)
    assert await meetings.read_reserved() == 0
    await meetings.advance(3700)
    assert (await meetings.read(app, bot["id"]))["chargedUsd"] == 0.65
    assert await meetings.read_spent() == spent_nanos
    rows = {row["dimension"]: row for row in await meetings.usage(app)}
    assert rows.keys() == {"recording", "transcription"}
    recording = rows["recording"]
    assert (recording["seconds"], recording["usd_charged"], recording["simulated"]) == (3600, "0.50", True)
    assert rows["transcription"]["usd_charged"] == "0.15"


@pytest.mark.parametrize(
    ("word", "status", "reason", "retryable"),
    [
        ("waiting_room", "fatal", "Nobody let the bot in from the waiting room in time.", False),
        ("denied", "fatal", "Somebody refused the bot in the waiting room.", False),
        ("kicked", "fatal", "Somebody removed the bot from the call.", False),
        ("not_found", "fatal", "There is no meeting at this address.", False),
        ("refused", "fatal", "The link of the meeting is not valid.", False),
        ("crash", "done", "Everybody else had left the call.", False),
        ("busy", "done", "Everybody else had left the call.", False),
        ("unknown_state", "done", "Everybody else had left the call.", False),
    ],
)
async def test_a_simulated_call_can_fail_in_each_way_in_which_real_ones_do(
    meetings: MeetingBaobab, app: str, word: str, status: str, reason: str, retryable: bool
) -> None:
    bot = await meetings.start(app, meetingUrl=f"{MEETING}?simulate={word}")
    for _ in range(60):
        await meetings.advance(1)
    bot = await meetings.read(app, bot["id"])
    assert (bot["status"], bot["reason"], bot["retryable"]) == (status, reason, retryable)


async def test_a_transcript_that_fails_or_comes_late_does_not_hold_up_the_bot(
    meetings: MeetingBaobab, app: str
) -> None:
    failed_bot = await meetings.start(app, meetingUrl=f"{MEETING}?simulate=transcript_failed")
    late = await meetings.start(app, meetingUrl=f"{MEETING}?simulate=late_transcript")
    await meetings.advance(60)
    bot = await meetings.read(app, failed_bot["id"])
    assert (bot["status"], bot["transcriptUrl"], bot["chargedUsd"]) == ("done", None, pytest.approx(20 * 0.5 / 3600))
    bot = await meetings.read(app, late["id"])
    assert (bot["status"], bot["transcriptUrl"], bot["chargedUsd"]) == ("done", None, None)
    await meetings.advance(120)
    bot = await meetings.read(app, late["id"])
    assert bot["transcriptUrl"] is not None
    assert bot["chargedUsd"] == pytest.approx(20 * 0.65 / 3600)


def test_every_way_to_fail_has_a_test() -> None:
    assert SCENES.keys() == {
        "",
        "waiting_room",
        "denied",
        "kicked",
        "not_found",
        "refused",
        "crash",
        "busy",
        "unknown_state",
        "transcript_failed",
        "late_transcript",
    }


async def test_a_bot_that_is_stopped_leaves_and_stopping_it_again_changes_nothing(
    meetings: MeetingBaobab, app: str
) -> None:
    bot = await meetings.start(app, meetingUrl=f"{MEETING}?simulate_seconds=3600")
    await meetings.advance(65)
    for _ in range(2):
        answer = await meetings.request("DELETE", meetings.path(app, bot["id"]))
        assert (answer.status_code, answer.content) == (204, b"")
    # It is told in the second in which it was asked to leave.
    await meetings.advance()
    for _ in range(5):
        await meetings.advance(1)
    assert (await meetings.request("DELETE", meetings.path(app, bot["id"]))).status_code == 204
    bot = await meetings.read(app, bot["id"])
    assert (bot["status"], bot["reason"], bot["durationSeconds"]) == ("done", "The bot was told to leave.", 60)


async def test_a_simulated_bot_is_looked_at_when_its_next_state_is_due(meetings: MeetingBaobab, app: str) -> None:
    start_at = meetings.clock.now()
    await meetings.start(app, meetingUrl=f"{MEETING}?simulate_seconds=3600")
    await meetings.advance(10)
    [job] = [each for each in await list_unfinished_jobs(meetings.application) if each.kind == "meetings_follow"]
    assert (job.due_at - start_at).total_seconds() == 3605


async def test_an_organisation_has_no_more_than_twenty_simulated_bots_at_once(
    meetings: MeetingBaobab, app: str
) -> None:
    bots = [await meetings.start(app if number % 2 else None) for number in range(20)]
    for owner, tool in ((app, "meetings_start"), (None, "gateway_meetings_start")):
        answer = await meetings.request("POST", meetings.path(owner), json={"meetingUrl": MEETING})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["limit"]) == (429, "too_many_simulated_bots", 20)
        assert error["type"] == "rate_limit_error"
        assert "/ai/meetings/{bot_id}" in error["remediation"]
        arguments = {"meetingUrl": MEETING} | ({"app_id": app} if owner else {})
        assert read_refusal(await call_tool(meetings, tool, arguments))["code"] == "too_many_simulated_bots"
    stranger = await create_key(meetings, (await create_person(meetings, "stranger")).headers)
    answer = await meetings.request("POST", meetings.path(None), json={"meetingUrl": MEETING}, headers=stranger)
    assert answer.status_code == 201
    await meetings.request("DELETE", meetings.path(None, bots[0]["id"]))
    for _ in range(5):
        await meetings.advance(1)
    await meetings.start(app)


async def test_a_list_has_pages_and_can_be_narrowed_to_a_state(meetings: MeetingBaobab, app: str) -> None:
    ended_bot = await meetings.start(app)
    await meetings.advance(60)
    others = [(await meetings.start(app))["id"] for _ in range(3)]
    first = (await meetings.request("GET", meetings.path(app), params={"limit": 2})).json()
    second = (
        await meetings.request("GET", meetings.path(app), params={"limit": 2, "cursor": first["nextCursor"]})
    ).json()
    ids = [bot["id"] for bot in (*first["bots"], *second["bots"])]
    assert sorted(ids) == sorted([*others, ended_bot["id"]])
    assert second["nextCursor"] is None
    done_bots = (await meetings.request("GET", meetings.path(app), params={"status": "done"})).json()
    assert [bot["id"] for bot in done_bots["bots"]] == [ended_bot["id"]]


@pytest.mark.parametrize("of_app", [True, False])
async def test_an_estimate_is_the_price_of_the_minutes(meetings: MeetingBaobab, app: str, of_app: bool) -> None:
    path = meetings.path(app if of_app else None, "_estimate")
    whole = (await meetings.request("GET", path, params={"durationMinutes": 90, "transcript": "true"})).json()
    assert whole == {"usd": 0.975, "simulated": True}
    silent = (await meetings.request("GET", path, params={"durationMinutes": 60, "transcript": "false"})).json()
    assert silent["usd"] == 0.5


async def test_prices_have_the_markup_of_the_installation(tmp_path: Path) -> None:
    async with open_meetings(tmp_path, BAOBAB_AI_MARKUP="10") as meetings:
        answer = await meetings.request("GET", meetings.path(None, "_estimate"), params={"durationMinutes": 60})
        assert answer.json()["usd"] == 0.715


async def test_without_a_provider_and_without_simulators_there_are_no_bots(tmp_path: Path) -> None:
    async with open_meetings(tmp_path, BAOBAB_SIMULATORS="off") as meetings:
        app = await meetings.create_app()
        assert (await meetings.client.get("/v1/ai/meetings/_status")).json() == {"available": False}
        for owner in (app, None):
            answer = await meetings.request("POST", meetings.path(owner), json={"meetingUrl": MEETING})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["type"]) == (501, "provider_unavailable", "api_error")
            assert "BAOBAB_MEETINGS_PROVIDER" in error["remediation"]


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({}, "meetingUrl"),
    ({"meetingUrl": "meet.google.com/abc"}, "meetingUrl"),
    ({"meetingUrl": "http://meet.google.com/abc-defg-hij"}, "meetingUrl"),
    ({"meetingUrl": "https://example.com/call"}, "meetingUrl"),
    ({"meetingUrl": "https://zoom.us/"}, "meetingUrl"),
    ({"meetingUrl": "https://meet.google.com/\nabc-defg-hij"}, "meetingUrl"),
    ({"meetingUrl": "https://meet.google.com/abc\\defg"}, "meetingUrl"),
    ({"meetingUrl": "https://meet.google.com:9/abc-defg-hij"}, "meetingUrl"),
    ({"meetingUrl": "https://meet.google.com:x/abc-defg-hij"}, "meetingUrl"),
    ({"meetingUrl": "https://:x@meet.google.com/abc-defg-hij"}, "meetingUrl"),
    ({"meetingUrl": "https://zoom.us.example.com/j/1"}, "meetingUrl"),
    ({"meetingUrl": f"{MEETING}?simulate=nonsense"}, "meetingUrl"),
    ({"meetingUrl": MEETING, "recording": "mp3"}, "recording"),
    ({"meetingUrl": MEETING, "recording": True}, "recording"),
    ({"meetingUrl": MEETING, "botName": ""}, "botName"),
    ({"meetingUrl": MEETING, "botName": "x" * 65}, "botName"),
    ({"meetingUrl": MEETING, "metadata": {"bb_secret": "1"}}, "metadata.bb_secret"),
    ({"meetingUrl": MEETING, "metadata": {"a": 1}}, "metadata.a"),
    ({"meetingUrl": MEETING, "automaticLeave": {"everyoneLeftTimeoutSec": 0}}, "automaticLeave.everyoneLeftTimeoutSec"),
    (
        {"meetingUrl": MEETING, "automaticLeave": {"waitingRoomTimeoutSec": 86_401}},
        "automaticLeave.waitingRoomTimeoutSec",
    ),
]


@pytest.mark.parametrize(("body", "field"), FAULTS, ids=[field for _, field in FAULTS])
async def test_a_request_with_a_fault_is_refused_and_the_fault_is_named(
    meetings: MeetingBaobab, app: str, body: dict[str, Any], field: str
) -> None:
    answer = await meetings.request("POST", meetings.path(app), json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (400, "invalid_request", "invalid_request_error")
    assert [fault["field"] for fault in error["details"]] == [field]


async def test_a_bot_that_neither_records_nor_transcribes_is_refused(meetings: MeetingBaobab, app: str) -> None:
    body = {"meetingUrl": MEETING, "recording": False, "transcript": False}
    answer = await meetings.request("POST", meetings.path(app), json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_the_gateway_does_not_take_what_only_apps_can_set(meetings: MeetingBaobab) -> None:
    answer = await meetings.request("POST", meetings.path(None), json={"meetingUrl": MEETING, "botName": "Scribe"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("minutes", ["0", "1441", "", "x"])
async def test_an_estimate_has_from_one_minute_to_a_day(meetings: MeetingBaobab, app: str, minutes: str) -> None:
    answer = await meetings.request("GET", meetings.path(app, "_estimate"), params={"durationMinutes": minutes})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_refusals_have_the_codes_of_the_contract(meetings: MeetingBaobab, app: str) -> None:
    client = meetings.client
    for path in (meetings.path(None), meetings.path(app)):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "missing_credentials")
        answer = await client.get(path, headers={"authorization": f"Bearer bb_sk_{'x' * 40}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.json()["error"]["type"] == "authentication_error"
        answer = await meetings.request("GET", f"{path}/{UNKNOWN}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "bot_not_found")
    answer = await meetings.request("GET", meetings.path("app_000000000000"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "app_not_found")
    answer = await meetings.request("GET", meetings.path("app_000000000000", "usage"))
    assert (answer.status_code, answer.json()["error"]) == (404, "App not found")
    headers = (await create_person(meetings, "stranger")).headers
    answer = await client.get(meetings.path(app), headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (403, "not_authorized", "permission_error")
    answer = await client.get(meetings.path(app, "usage"), headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "Not authorized")
    answer = await meetings.request("PUT", meetings.path(app, "webhook"), json={"forward_url": 7})
    assert (answer.status_code, answer.json()["error"]) == (400, "Invalid request")
    assert answer.json()["details"][0]["field"] == "forward_url"


async def test_the_audit_log_says_who_has_sent_a_bot_and_told_it_to_leave(meetings: MeetingBaobab, app: str) -> None:
    bot = await meetings.start(app, meetingUrl=f"{MEETING}?simulate_seconds=3600")
    assert (await meetings.request("DELETE", meetings.path(app, bot["id"]))).status_code == 204
    for event in ("ai_meetings.start", "ai_meetings.stop"):
        answer = await meetings.request("GET", f"/v1/{app}/audit-logs?event_type={event}")
        [row] = answer.json()["logs"]
        assert (row["event_type"], row["resource_id"]) == (event, bot["id"])
        assert MEETING not in answer.text, "the link of a meeting lets whoever reads it in"
