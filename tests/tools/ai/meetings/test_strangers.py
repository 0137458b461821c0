"""What strangers can do to meetings: unsigned webhooks, and two organisations in one meeting with one account."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clock import FixedClock
from tests.people import create_key, create_person
from tests.tools.ai.meetings.conftest import MeetingBaobab, open_meetings
from tests.tools.ai.meetings.fake_attendee import SECRET
from tests.tools.ai.meetings.fake_provider import KEY, start_fake
from tests.tools.ai.meetings.fake_vexa import FakeVexa


async def test_webhooks_that_cost_much_to_read_are_refused(tmp_path: Path) -> None:
    variables: dict[str, Any] = {"BAOBAB_MEETINGS_PROVIDER": "attendee", "BAOBAB_MEETINGS_KEY": "key"}
    async with open_meetings(tmp_path, **variables, BAOBAB_MEETINGS_WEBHOOK_SECRET=SECRET) as meetings:
        forged_headers = {"x-webhook-signature": "A" * 43 + "="}
        for headers, content, status in (
            ({}, b"{}", 401),
            ({"x-webhook-signature": "short"}, b"{}", 401),
            (forged_headers, b"{}", 401),
            (forged_headers, b"[" * 900, 401),
            (forged_headers, b"1" * 65_000, 401),
            (forged_headers, b"[" * 60_000, 413),
            (forged_headers, b'{"a":' * 12_000, 413),
            (forged_headers, b"[" + b"1," * 32_000 + b"1]", 413),
            (forged_headers, b" " * (2**16 + 1), 413),
        ):
            answer = await meetings.client.post("/v1/ai/meetings/_hooks/attendee", content=content, headers=headers)
            assert answer.status_code == status, answer.text


@contextlib.asynccontextmanager
async def open_vexa(folder: Path) -> AsyncIterator[tuple[MeetingBaobab, FakeVexa]]:
    clock = FixedClock()
    async with start_fake(FakeVexa(clock)) as fake:
        variables = {"BAOBAB_MEETINGS_PROVIDER": "vexa", "BAOBAB_MEETINGS_KEY": KEY, "BAOBAB_MEETINGS_URL": fake.url}
        async with open_meetings(folder, clock, **variables) as meetings:
            yield meetings, fake


@pytest.mark.parametrize("has_left", [False, True])
async def test_a_bot_in_the_same_meeting_is_not_taken_for_ones_own(tmp_path: Path, has_left: bool) -> None:
    async with open_vexa(tmp_path) as (meetings, fake):
        await meetings.start(None, recording=False)
        await meetings.advance()
        fake.move(0, "active")
        stranger = await create_key(meetings, (await create_person(meetings, "stranger")).headers)
        body = {"meetingUrl": "https://meet.google.com/abc-defg-hij", "recording": False}
        bot = (await meetings.request("POST", meetings.path(None), json=body, headers=stranger)).json()
        path = meetings.path(None, bot["id"])
        for _ in range(3):
            await meetings.advance(40)
        assert (await meetings.request("GET", path, headers=stranger)).json()["status"] == "joining"
        if has_left:
            fake.move(0, "completed", "left_alone")
            await meetings.advance(40)
            fake.move(1, "active")
            await meetings.advance(40)
            assert (await meetings.request("GET", path, headers=stranger)).json()["status"] == "recording"
            assert len(fake.meetings) == 2
            return
        for _ in range(40):
            await meetings.advance(130)
        bot = (await meetings.request("GET", path, headers=stranger)).json()
        assert bot["status"] == "fatal"
        assert "is in that meeting already" in bot["reason"]
        await meetings.request("DELETE", path, headers=stranger)
        await meetings.advance()
        assert fake.left == []
