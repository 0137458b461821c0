"""What Google Calendar and Microsoft Graph answer about events, as their documents show it, read as calls."""

from datetime import UTC, datetime
from typing import Any

import pytest

from baobab.tools.ai.meetings.calendar_events import READERS, CalendarEvent

NINE = datetime(2027, 5, 3, 9, tzinfo=UTC)
MEET, ZOOM = "https://meet.google.com/abc-defg-hij", "https://us02web.zoom.us/j/8912345?pwd=aB1"
TEAMS = "https://teams.microsoft.com/l/meetup-join/19%3ameeting_x%40thread.v2/0?context=%7b%22Tid%22%3a%221%22%7d"
GOOGLE: dict[str, Any] = {
    "id": "e1",
    "iCalUID": "e1@google.com",
    "status": "confirmed",
    "summary": "Weekly",
    "start": {"dateTime": "2027-05-03T11:00:00+02:00", "timeZone": "Europe/Berlin"},
    "end": {"dateTime": "2027-05-03T11:30:00+02:00", "timeZone": "Europe/Berlin"},
    "organizer": {"email": "ada@shop.example", "self": True},
    "hangoutLink": MEET,
}
GRAPH: dict[str, Any] = {
    "id": "AAMk",
    "iCalUId": "0400",
    "subject": "Weekly",
    "isAllDay": False,
    "isCancelled": False,
    "start": {"dateTime": "2027-05-03T09:00:00.0000000", "timeZone": "UTC"},
    "end": {"dateTime": "2027-05-03T09:30:00.0000000", "timeZone": "UTC"},
    "responseStatus": {"response": "accepted", "time": "2027-04-01T00:00:00Z"},
    "onlineMeeting": {"joinUrl": TEAMS},
}


def guest(response: str) -> dict[str, Any]:
    """What makes the calendar's owner a guest of somebody else, who has answered so."""
    attendees: list[dict[str, Any]] = [{"email": "eve@other.example"}, {"email": "ada@shop.example", "self": True}]
    attendees[1]["responseStatus"] = response
    return {"organizer": {"email": "eve@other.example"}, "attendees": attendees}


def read_one(toolkit: str, item: dict[str, Any]) -> CalendarEvent | None:
    reader = READERS[toolkit]
    listing = reader.parse({reader.items: [item]})
    assert listing.unread == 0
    return next(iter(listing.events), None)


@pytest.mark.parametrize("toolkit", READERS)
def test_an_event_is_read_with_its_time_in_utc_and_its_link(toolkit: str) -> None:
    event = read_one(toolkit, GOOGLE if toolkit == "google-calendar" else GRAPH)
    assert event is not None
    assert (event.title, event.starts_at, event.is_answered) == ("Weekly", NINE, True)
    assert event.meeting_url == (MEET if toolkit == "google-calendar" else TEAMS)
    assert (event.ends_at - event.starts_at).total_seconds() == 1800


CASES: dict[str, tuple[str, dict[str, Any], str | None, bool]] = {
    "accepted": ("google-calendar", guest("accepted"), MEET, True),
    "not answered": ("google-calendar", guest("needsAction"), MEET, False),
    "tentative": ("google-calendar", guest("tentative"), MEET, False),
    "declined": ("google-calendar", guest("declined"), None, False),
    "of a group": ("google-calendar", {"organizer": {"email": "eve@other.example"}}, MEET, False),
    "cancelled": ("google-calendar", {"status": "cancelled"}, None, False),
    "a whole day": ("google-calendar", {"start": {"date": "2027-05-03"}, "end": {"date": "2027-05-04"}}, None, False),
    "a video entry": (
        "google-calendar",
        {
            "conferenceData": {
                "entryPoints": [{"entryPointType": "phone", "uri": "tel:+1"}, {"entryPointType": "video", "uri": ZOOM}]
            }
        },
        ZOOM,
        True,
    ),
    "a place": ("google-calendar", {"hangoutLink": None, "location": f"Room 4, {ZOOM}"}, ZOOM, True),
    "a text": (
        "google-calendar",
        {"hangoutLink": None, "description": f'<a href="{ZOOM.replace("?", "?a=1&amp;")}">Join</a> (or call).'},
        ZOOM.replace("?", "?a=1&"),
        True,
    ),
    "a sentence": ("google-calendar", {"hangoutLink": None, "description": f"(Join {ZOOM})."}, ZOOM, True),
    "no call": ("google-calendar", {"hangoutLink": None, "description": "https://example.com/j/1"}, None, False),
    "a lookalike": (
        "google-calendar",
        {"hangoutLink": "https://meet.google.com.example/abc", "location": "https://a@zoom.us/j/1"},
        None,
        False,
    ),
    "organised": ("outlook", {"responseStatus": {"response": "organizer"}}, TEAMS, True),
    "own": ("outlook", {"responseStatus": {"response": "none"}}, TEAMS, True),
    "open": ("outlook", {"responseStatus": {"response": "notResponded"}}, TEAMS, False),
    "refused": ("outlook", {"responseStatus": {"response": "declined"}}, None, False),
    "called off": ("outlook", {"isCancelled": True}, None, False),
    "all day": ("outlook", {"isAllDay": True}, None, False),
    "a body": (
        "outlook",
        {"onlineMeeting": None, "body": {"contentType": "html", "content": f"<p>{ZOOM}</p>"}},
        ZOOM,
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_event_is_a_call_as_its_owner_has_answered_and_where_its_link_is(name: str) -> None:
    toolkit, changes, url, is_answered = CASES[name]
    event = read_one(toolkit, {**(GOOGLE if toolkit == "google-calendar" else GRAPH), **changes})
    assert (None if event is None else event.meeting_url) == url
    if event is not None:
        assert event.is_answered is is_answered


def test_guests_of_one_event_have_it_under_one_key_and_each_of_a_series_has_its_own_time() -> None:
    mine, theirs = read_one("google-calendar", GOOGLE), read_one("google-calendar", {**GOOGLE, "id": "e1_copy"})
    assert mine is not None
    assert theirs is not None
    assert mine.key == theirs.key
    other = read_one("google-calendar", {**GOOGLE, "iCalUID": "e2@google.com"})
    assert other is not None
    assert other.key != mine.key


def test_an_answer_in_another_object_is_read_and_one_that_goes_on_is_not_whole() -> None:
    reader = READERS["google-calendar"]
    listing = reader.parse({"response_data": {"items": [GOOGLE], "nextPageToken": "next"}})
    assert (len(listing.events), listing.is_whole) == (1, False)
    assert reader.parse({"items": [GOOGLE]}).is_whole
    graph = READERS["outlook"]
    assert not graph.parse({"value": [GRAPH] * graph.page_size}).is_whole
    assert graph.parse(None).events == ()


@pytest.mark.parametrize(
    "start",
    [
        {"dateTime": "tomorrow"},
        {"dateTime": 7},
        {"dateTime": "0001-01-01T00:00:00+14:00"},
        {"dateTime": "2027-05-03T09:00:00", "timeZone": "W. Europe Standard Time"},
    ],
)
def test_an_event_whose_time_makes_no_sense_is_counted_and_spoils_no_other(start: dict[str, Any]) -> None:
    toolkit = "outlook" if "timeZone" in start else "google-calendar"
    item = GRAPH if toolkit == "outlook" else GOOGLE
    listing = READERS[toolkit].parse({READERS[toolkit].items: [{**item, "start": start}, item]})
    assert (len(listing.events), listing.unread) == (1, 1)


def test_a_title_that_a_stranger_has_written_has_nothing_that_cannot_be_stored_or_shown() -> None:
    event = read_one("google-calendar", {**GOOGLE, "summary": "Week\x00ly\u202e \ud800 \n talk" + "x" * 300})
    assert event is not None
    assert event.title.startswith("Week ly talkx")
    assert len(event.title) == 200
