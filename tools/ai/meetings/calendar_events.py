"""Reads the events of calendars: what a toolkit of integrations answers, as the calls that a bot could join."""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from baobab.tools.ai.meetings.starting import find_fault

Answer = Literal["yes", "no", "open"]
"""What the calendar's owner has answered to an invitation."""
_LINK = re.compile(r"https://[!#$%&()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+")
_LONGEST_TITLE, _LONGEST_TEXT, _LONGEST_URL = 200, 20_000, 2048
_FORM = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """An event at which a call begins. key: the same in the calendars of all who are invited."""

    key: str
    title: str
    meeting_url: str
    starts_at: datetime
    ends_at: datetime
    is_answered: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """What was read of a calendar. is_whole: whether there was no more. unread: events whose time makes no sense."""

    events: tuple[CalendarEvent, ...]
    is_whole: bool
    unread: int = 0


@dataclass(frozen=True, slots=True)
class CalendarReader:
    """How the events of one service's calendars are read. page_size: how many at once."""

    tool: str
    page_size: int
    build_params: Callable[[str, str, int], Mapping[str, Any]]
    items: str
    following: str
    read: "Callable[[Mapping[str, Any]], CalendarEvent | None]"

    def build(self, since: datetime, until: datetime) -> Mapping[str, Any]:
        """Returns the parameters of the call that lists the events between two times."""
        return self.build_params(since.strftime(_FORM), until.strftime(_FORM), self.page_size)

    def parse(self, data: Any) -> Listing:
        """Returns the calls among the events of an answer."""
        content = _find_content(data, self.items)
        items = [item for item in content.get(self.items) or () if isinstance(item, dict)]
        events, unread = list[CalendarEvent](), 0
        for item in items:
            try:
                event = self.read(item)
            except (ValueError, OverflowError):
                unread += 1
                continue
            if event is not None:
                events.append(event)
        is_whole = not content.get(self.following) and len(items) < self.page_size
        return Listing(tuple(events), is_whole, unread)


def _find_content(data: Any, items: str) -> Mapping[str, Any]:
    """Returns the part of an answer that has the items: Composio puts what a service answers into another object."""
    for place in (data, *(data.values() if isinstance(data, dict) else ())):
        if isinstance(place, dict) and isinstance(place.get(items), list):
            return place
    return {}


def _read_google(item: Mapping[str, Any]) -> CalendarEvent | None:
    answer = _read_google_answer(item)
    start, end = _as_object(item.get("start")), _as_object(item.get("end"))
    # One without an hour is a whole day.
    if item.get("status") == "cancelled" or answer == "no" or not start.get("dateTime"):
        return None
    video_links = (
        entry.get("uri")
        for entry in _as_objects(_as_object(item.get("conferenceData")).get("entryPoints"))
        if entry.get("entryPointType") == "video"
    )
    url = find_meeting_url([*video_links, *(item.get(name) for name in ("hangoutLink", "location", "description"))])
    if url is None:
        return None
    starts_at, ends_at = _read_time(start["dateTime"]), _read_time(end.get("dateTime"))
    return _build(item.get("iCalUID") or item.get("id"), item.get("summary"), url, starts_at, ends_at, answer)


def _read_google_answer(item: Mapping[str, Any]) -> Answer:
    own_entry = next((entry for entry in _as_objects(item.get("attendees")) if entry.get("self")), None)
    if own_entry is not None:
        response = str(own_entry.get("responseStatus"))
        return "no" if response == "declined" else "yes" if response == "accepted" else "open"
    organizer = item.get("organizer")
    return "yes" if not isinstance(organizer, dict) or organizer.get("self") else "open"


def _read_outlook(item: Mapping[str, Any]) -> CalendarEvent | None:
    response = str(_as_object(item.get("responseStatus")).get("response"))
    answer: Answer = "open" if response in ("notResponded", "tentativelyAccepted") else "yes"
    if item.get("isCancelled") or item.get("isAllDay") or response == "declined":
        return None
    places = [_as_object(item.get("onlineMeeting")).get("joinUrl"), item.get("onlineMeetingUrl")]
    places += [_as_object(item.get("location")).get("displayName"), _as_object(item.get("body")).get("content")]
    url = find_meeting_url([*places, item.get("bodyPreview")])
    if url is None:
        return None
    starts_at, ends_at = _read_graph_time(item.get("start")), _read_graph_time(item.get("end"))
    return _build(item.get("iCalUId") or item.get("id"), item.get("subject"), url, starts_at, ends_at, answer)


def _read_graph_time(value: Any) -> datetime:
    """Returns a time of Microsoft Graph, which answers in UTC where nobody asks for another zone."""
    content = _as_object(value)
    if content.get("timeZone", "UTC") not in ("UTC", "Etc/UTC", "tzone://Microsoft/Utc"):
        raise ValueError(content["timeZone"])
    return _read_time(content.get("dateTime"))


def _read_time(value: Any) -> datetime:
    """Returns a time. Raises ValueError for what is none."""
    if not isinstance(value, str):
        raise ValueError(value)  # noqa: TRY004 - a service's answer is at fault, and not our own call
    at = datetime.fromisoformat(value)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)


def _build(
    uid: Any, title: Any, url: str, starts_at: datetime, ends_at: datetime, answer: Answer
) -> CalendarEvent | None:
    if not isinstance(uid, str) or not uid or ends_at <= starts_at:
        return None
    # Anybody who sends an invitation has written it; not every character can be stored.
    shown_text = "".join(each if each.isprintable() else " " for each in title) if isinstance(title, str) else ""
    words = " ".join(shown_text.split())
    key = sha256(uid.encode()).hexdigest()
    return CalendarEvent(key, words[:_LONGEST_TITLE], url, starts_at, ends_at, answer == "yes")


def find_meeting_url(texts: Sequence[Any]) -> str | None:
    """Returns the first link of a meeting in texts that strangers may have written; None if there is none."""
    return next((url for text in texts if isinstance(text, str) for url in _list_links(text)), None)


def _list_links(text: str) -> Iterator[str]:
    for link in _LINK.findall(text[:_LONGEST_TEXT]):
        url = html.unescape(link).rstrip(".,;:!?)]>")
        if len(url) <= _LONGEST_URL and find_fault(url) is None:
            yield url


def _as_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


READERS: Mapping[str, CalendarReader] = {
    "google-calendar": CalendarReader(
        "GOOGLECALENDAR_EVENTS_LIST",
        250,
        lambda since, until, most: {"timeMin": since, "timeMax": until, "maxResults": most},
        "items",
        "nextPageToken",
        _read_google,
    ),
    "outlook": CalendarReader(
        "OUTLOOK_LIST_EVENTS",
        100,
        lambda since, until, most: {"start_datetime": since, "end_datetime": until, "top": most},
        "value",
        "@odata.nextLink",
        _read_outlook,
    ),
}
"""By toolkit of integrations."""
