"""Calendars by which bots are sent: one into each call, at its hour, and into nothing that is not in the calendar."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core import RetryLater
from tests.clock import FixedClock
from tests.jobs import run_job
from tests.mcp_server.mcp_requests import call_tool, read_refusal
from tests.people import create_person, get_first_organisation
from tests.tools.ai.meetings.conftest import MEETING, MeetingBaobab
from tests.tools.ai.meetings.fake_provider import KEY
from tests.tools.ai.meetings.fake_recall import SECRET, start_recall
from tests.tools.integrations.conftest import Shop, open_shop

LONG = f"{MEETING}?simulate_seconds=1800"


@dataclass
class Office:
    """An app with meetings and integrations, whose user has connected calendars."""

    shop: Shop
    meetings: MeetingBaobab

    @property
    def app(self) -> str:
        return self.shop.app

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any) -> Any:
        path = self.meetings.path(self.app, *([path] if path else []))
        answer = await self.meetings.request(method, path, headers=headers or self.meetings.owner, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def set(self, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        body = {"user_id": self.shop.user_id, "toolkit": "google-calendar", **fields}
        return await self.ask("PUT", "calendars", headers, json=body)

    async def invite(self, minutes: float, title: str = "Weekly", url: str = LONG, last: float = 30) -> str:
        """Puts a call into the user's calendar, so many minutes from now, and returns the event's id."""
        params = {"summary": title, "description": f"Join at {url} please.", **self.build_times(minutes, last)}
        event = await self.shop.execute("GOOGLECALENDAR_CREATE_EVENT", params)
        event_id: str = event["id"]
        return event_id

    async def change(self, event_id: str, **params: Any) -> None:
        await self.shop.execute("GOOGLECALENDAR_PATCH_EVENT", {"event_id": event_id, **params})

    def build_times(self, minutes: float, last: float = 30) -> dict[str, str]:
        start = self.shop.clock.now() + timedelta(minutes=minutes)
        end = start + timedelta(minutes=last)
        return {"start_datetime": f"{start:%Y-%m-%dT%H:%M:%SZ}", "end_datetime": f"{end:%Y-%m-%dT%H:%M:%SZ}"}

    async def wait(self, minutes: float) -> None:
        """Lets time pass in steps of half a minute, in which calendars are looked at."""
        for _ in range(int(minutes * 2)):
            await run_job(self.meetings.application, "meetings_calendars_tick")
            await self.meetings.advance(30)

    async def read_now(self) -> None:
        """Sets the calendar anew, and has it read without any time going by."""
        await self.set()
        await self.read_calendar_now()

    async def read_calendar_now(self) -> None:
        """Has the calendar read if its time has come."""
        await run_job(self.meetings.application, "meetings_calendars_tick")
        await self.meetings.advance()

    async def list_bots(self) -> list[Any]:
        bots: list[Any] = (await self.ask("GET", ""))["bots"]
        return bots

    async def list_events(self) -> list[Any]:
        events: list[Any] = (await self.ask("GET", "calendar-events"))["events"]
        return events

    async def read_outcomes(self) -> list[tuple[str, str]]:
        return [(event["title"], event["status"]) for event in await self.list_events()]

    async def read_calendar(self) -> Any:
        [calendar] = (await self.ask("GET", "calendars"))["calendars"]
        return calendar


@contextlib.asynccontextmanager
async def open_office(folder: Path, clock: FixedClock | None = None, **variables: str) -> AsyncIterator[Office]:
    async with open_shop(folder, variables or None, clock) as shop:
        baobab = shop.baobab
        await shop.configure("google-calendar", "outlook")
        await shop.connect("google-calendar")
        yield Office(shop, MeetingBaobab(baobab.application, baobab.client, clock=shop.clock))


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path / "data") as office:
        yield office


async def test_a_bot_joins_a_call_of_a_connected_calendar_once_and_at_its_hour(office: Office) -> None:
    await office.invite(10)
    calendar = await office.set(bot_name="Scribe", recording="audio_only")
    assert (calendar["enabled"], calendar["most_a_day"], calendar["failure"]) == (True, 10, None)
    await office.wait(1)
    [event] = await office.list_events()
    assert (event["title"], event["status"], event["meeting_url"]) == ("Weekly", "planned", LONG)
    assert await office.list_bots() == []
    await office.wait(9)
    [bot] = await office.list_bots()
    assert bot["botName"] == "Scribe"
    assert bot["metadata"] == {"calendar_id": calendar["id"], "event_id": event["id"], "title": "Weekly"}
    await office.wait(20)
    assert len(await office.list_bots()) == 1
    [event] = await office.list_events()
    assert (event["status"], event["bot_id"], event["message"]) == ("sent", bot["id"], None)
    assert (await office.read_calendar())["read_at"] is not None


async def test_an_event_that_moves_gets_its_bot_at_the_new_time_and_one_that_is_deleted_gets_none(
    office: Office,
) -> None:
    await office.set()
    moved_id, deleted_id = await office.invite(10, "Moved"), await office.invite(10, "Deleted")
    await office.wait(6)
    assert sorted(await office.read_outcomes()) == [("Deleted", "planned"), ("Moved", "planned")]
    # In the last minute but one, when the calendar was read for the last time before the hour.
    await office.wait(2)
    await office.change(moved_id, **office.build_times(32))
    await office.shop.execute("GOOGLECALENDAR_DELETE_EVENT", {"event_id": deleted_id})
    await office.wait(10)
    assert await office.list_bots() == []
    outcomes = await office.read_outcomes()
    assert sorted(outcomes) == [("Deleted", "cancelled"), ("Moved", "cancelled"), ("Moved", "planned")]
    await office.wait(22)
    [bot] = await office.list_bots()
    assert bot["metadata"]["title"] == "Moved"


async def test_a_bot_that_waits_for_a_call_that_was_moved_leaves_and_another_comes_later(office: Office) -> None:
    event_id = await office.invite(3)
    await office.set()
    await office.wait(2)
    await office.read_now()
    [bot] = await office.list_bots()
    assert bot["status"] == "joining"
    await office.change(event_id, **office.build_times(60))
    await office.read_now()
    assert sorted(event["status"] for event in await office.list_events()) == ["cancelled", "planned"]
    await office.wait(1)
    [bot] = await office.list_bots()
    assert (bot["reason"], bot["durationSeconds"]) == ("The bot was told to leave.", 0)
    await office.wait(60)
    assert len(await office.list_bots()) == 2


async def test_a_bot_that_records_stays_when_its_event_is_taken_out_of_the_calendar(office: Office) -> None:
    await office.set()
    event_id = await office.invite(3)
    await office.wait(4)
    await office.shop.execute("GOOGLECALENDAR_DELETE_EVENT", {"event_id": event_id})
    await office.wait(6)
    [bot] = await office.list_bots()
    assert bot["status"] == "recording"
    assert await office.read_outcomes() == [("Weekly", "sent")]


async def test_an_event_that_comes_back_to_its_time_is_planned_again(office: Office) -> None:
    await office.set()
    times = office.build_times(20)
    event_id = await office.invite(20)
    await office.wait(1)
    await office.change(event_id, **office.build_times(600))
    await office.wait(6)
    await office.change(event_id, **times)
    await office.wait(6)
    assert sorted(event["status"] for event in await office.list_events()) == ["cancelled", "planned"]
    await office.wait(8)
    assert len(await office.list_bots()) == 1


async def test_a_call_of_an_outlook_calendar_gets_a_bot(office: Office) -> None:
    await office.shop.connect("outlook")
    await office.set(toolkit="outlook")
    times = {name: value.removesuffix("Z") for name, value in office.build_times(10).items()}
    params = {"subject": "In Outlook", "body": "", "location": LONG, **times}
    await office.shop.execute("OUTLOOK_CALENDAR_CREATE_EVENT", params)
    await office.wait(12)
    [bot] = await office.list_bots()
    assert bot["metadata"]["title"] == "In Outlook"


async def test_a_call_in_the_calendars_of_two_users_gets_one_bot(office: Office) -> None:
    user_id, user = await office.shop.create_user()
    other = replace(office, shop=replace(office.shop, user_id=user_id, user=user))
    await other.shop.connect("google-calendar", "Allow as team")
    times = office.build_times(10)
    for one in (office, other):
        # An event that is in everybody's calendar under one id.
        await one.change("e1", summary="Together", description=LONG, **times)
        await one.set()
    await office.wait(5)
    assert await office.read_outcomes() == [("Together", "planned")]
    # Whoever had it first switches theirs off; the other one still has it.
    await office.set(enabled=False)
    await office.wait(7)
    assert await office.read_outcomes() == [("Together", "sent")]
    assert len(await office.list_bots()) == 1


async def test_only_events_with_a_title_and_a_link_that_fit_get_a_bot(office: Office) -> None:
    await office.set(title_contains="standup")
    await office.invite(5, "Morning STANDUP")
    await office.invite(5, "Lunch")
    await office.invite(5, "Standup by phone", url="https://example.com/call")
    await office.wait(7)
    assert await office.read_outcomes() == [("Morning STANDUP", "sent")]


async def test_no_bot_is_sent_to_what_began_before_the_calendar_was_set_or_while_it_was_off(office: Office) -> None:
    await office.invite(1, "Before")
    await office.wait(2)
    await office.set()
    await office.wait(1)
    await office.invite(3, "While off")
    await office.read_now()
    assert await office.read_outcomes() == [("While off", "planned")]
    off = await office.set(enabled=False)
    assert off["enabled"] is False
    [event] = await office.list_events()
    assert (event["status"], event["message"]) == ("cancelled", "The calendar was switched off.")
    await office.wait(4)
    await office.set()
    await office.wait(1)
    assert await office.list_bots() == []


async def test_a_calendar_sends_no_more_bots_in_a_day_than_it_may_and_says_so(office: Office) -> None:
    await office.set(most_a_day=1)
    await office.invite(5, "First")
    await office.invite(6, "Second")
    await office.wait(8)
    assert len(await office.list_bots()) == 1
    [second, first] = await office.list_events()
    assert (first["status"], second["status"]) == ("sent", "failed")
    assert second["message"].startswith("The calendar has sent 1 bots within a day")


async def test_a_paused_app_sends_no_bots(office: Office) -> None:
    await office.set()
    await office.invite(5)
    await office.wait(1)
    answer = await office.meetings.request("PATCH", f"/v1/{office.app}/config/pause", json={"paused": True})
    assert answer.status_code == 200, answer.text
    await office.wait(10)
    assert await office.list_bots() == []
    answer = await office.meetings.request("PATCH", f"/v1/{office.app}/config/pause", json={"paused": False})
    # The call is still going on.
    await office.wait(6)
    assert len(await office.list_bots()) == 1


async def test_a_calendar_is_switched_off_when_whoever_set_it_loses_the_right(office: Office) -> None:
    made_key = (await office.meetings.request("POST", "/api-keys", json={"name": "calendars"})).json()
    calendar = await office.set({"authorization": f"Bearer {made_key['key']}"})
    assert calendar["key_id"] == made_key["key_id"]
    await office.invite(5)
    await office.wait(1)
    await office.meetings.request("DELETE", f"/api-keys/{made_key['key_id']}")
    await office.wait(8)
    assert await office.list_bots() == []
    calendar = await office.read_calendar()
    assert (calendar["enabled"], calendar["reason"]) == (False, "The key that proposed this call has been revoked.")


async def test_nothing_is_sent_by_a_calendar_that_cannot_be_read_and_the_reason_is_told(office: Office) -> None:
    await office.invite(8, last=5)
    await office.set()
    await office.read_calendar_now()
    [connection] = await office.shop.list_connections()
    await office.shop.ask("DELETE", f"/connections/{connection['id']}", office.shop.user)
    await office.wait(20)
    assert await office.list_bots() == []
    [event] = await office.list_events()
    assert event["status"] == "missed"
    calendar = await office.read_calendar()
    assert "no connected account" in calendar["failure"]
    assert calendar["enabled"] is True


async def test_a_calendar_of_a_user_who_has_connected_none_is_refused_over_rest_and_mcp(office: Office) -> None:
    body = {"user_id": office.shop.user_id, "toolkit": "outlook"}
    answer = await office.meetings.request("PUT", office.meetings.path(office.app, "calendars"), json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "calendar_not_connected")
    result = await call_tool(office.meetings, "meetings_calendars_set", {"app_id": office.app, **body})
    assert read_refusal(result)["code"] == "calendar_not_connected"
    body["toolkit"] = "google-calendar"
    result = await call_tool(office.meetings, "meetings_calendars_set", {"app_id": office.app, **body})
    assert result["structuredContent"]["enabled"] is True


async def test_only_admins_set_a_calendar_and_strangers_see_none(office: Office) -> None:
    calendar = await office.set()
    colleague = await create_person(office.meetings, "colleague", role="member")
    stranger = await create_person(office.meetings, "stranger")
    path = office.meetings.path(office.app, "calendars")
    body = {"user_id": office.shop.user_id, "toolkit": "google-calendar"}
    for person in (colleague, stranger):
        answer = await office.meetings.request("PUT", path, json=body, headers=person.headers)
        assert answer.status_code == 403, answer.text
    assert (await office.meetings.request("GET", path, headers=stranger.headers)).status_code == 403
    other_app = await office.meetings.create_app()
    foreign = office.meetings.path(other_app, "calendars", calendar["id"])
    assert (await office.meetings.request("DELETE", foreign)).status_code == 404
    own = office.meetings.path(office.app, "calendars", calendar["id"])
    assert (await office.meetings.request("DELETE", own)).json() == {"id": calendar["id"], "deleted": True}


async def test_a_calendar_that_is_deleted_and_set_again_sends_no_second_bot_into_a_call(office: Office) -> None:
    calendar = await office.set()
    await office.invite(3)
    await office.wait(3)
    assert len(await office.list_bots()) == 1
    await office.meetings.request("DELETE", office.meetings.path(office.app, "calendars", calendar["id"]))
    await office.invite(5, "Another")
    await office.set()
    await office.wait(6)
    titles = sorted(bot["metadata"]["title"] for bot in await office.list_bots())
    assert titles == ["Another", "Weekly"]


async def test_a_user_who_is_deleted_leaves_no_calendar_and_no_titles(office: Office) -> None:
    await office.set()
    await office.invite(3, "Sent")
    await office.invite(90, "Later")
    await office.wait(3)
    answer = await office.meetings.request("DELETE", f"/v1/{office.app}/admin/auth/users/{office.shop.user_id}")
    assert answer.status_code < 300, answer.text
    await office.wait(1)
    assert (await office.ask("GET", "calendars"))["calendars"] == []
    assert await office.read_outcomes() == [("", "sent")]


async def test_a_worker_that_ends_before_a_bot_is_written_down_leaves_it_to_be_sent_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, starts = office.meetings.application.registry, list[str]()
    run = registry.run

    async def run_and_end(tool: Any, *arguments: Any, **options: Any) -> Any:
        result = await run(tool, *arguments, **options)
        if tool.name == "meetings_start":
            starts.append(result[0]["id"])
            if len(starts) == 1:
                # Its transaction is not committed: as if the process had been killed.
                raise RetryLater(0, "killed")
        return result

    monkeypatch.setattr(registry, "run", run_and_end)
    await office.invite(3)
    await office.set()
    await office.wait(5)
    assert len(starts) == 2
    [bot] = await office.list_bots()
    assert bot["id"] == starts[1]


async def test_workers_that_follow_a_calendar_at_the_same_time_send_one_bot(office: Office) -> None:
    await office.invite(3)
    calendar = await office.set()
    await office.wait(2)
    services: Any = office.meetings.application.services
    async with services.database.writing_unit(lock=None) as unit:
        for _ in range(4):
            await services.jobs.enqueue(unit, "meetings_calendars_follow", {"calendar_id": calendar["id"]})
    await office.wait(2)
    assert len(await office.list_bots()) == 1
    assert await office.read_outcomes() == [("Weekly", "sent")]


async def test_a_bot_of_a_real_provider_is_paid_like_any_other_and_none_is_sent_without_credits(tmp_path: Path) -> None:
    clock = FixedClock()
    async with start_recall(clock) as fake:
        variables = {"BAOBAB_MEETINGS_PROVIDER": "recall", "BAOBAB_MEETINGS_KEY": KEY, "BAOBAB_MEETINGS_URL": fake.url}
        variables |= {"BAOBAB_MEETINGS_WEBHOOK_SECRET": SECRET, "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
        async with open_office(tmp_path / "data", clock, **variables, BAOBAB_SIMULATORS="on") as office:
            await office.invite(3, "Paid", url=MEETING)
            await office.invite(6, "Unpaid", url=MEETING)
            await office.set()
            await office.wait(3)
            assert [bot["bot_name"] for bot in fake.creations] == ["Baobab Notetaker"]
            assert await office.meetings.read_reserved() > 0
            organisation_id = await get_first_organisation(office.meetings)
            await office.meetings.application.services.part(Credits).set_terms(organisation_id, allowance=0)
            await office.wait(4)
            assert len(fake.creations) == 1
            later_event, earlier_event = await office.list_events()
            assert (earlier_event["status"], later_event["status"]) == ("sent", "failed")
            assert "credit" in later_event["message"].lower()
