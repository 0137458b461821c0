"""What the wires of Attendee and Vexa read from webhooks and links."""

import base64
import hmac
import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest

from baobab.runtime.meetings.attendee import Attendee
from baobab.runtime.meetings.provider import HookRefused
from baobab.runtime.meetings.vexa import Vexa, parse_meeting
from baobab.runtime.net.egress import Egress

NOW = datetime(2027, 1, 15, 9, tzinfo=UTC)
SECRET = base64.b64encode(b"a shared secret").decode()


def sign_for_attendee(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(hmac.digest(base64.b64decode(SECRET), text.encode(), sha256)).decode()


def test_a_webhook_of_attendee_is_signed_over_its_content_and_not_over_its_bytes() -> None:
    provider = Attendee(Egress(), "key", "", SECRET)
    data = {"new_state": "waiting_room", "event_type": "put_in_waiting_room", "event_sub_type": None}
    data["created_at"] = "2027-01-15T09:01:00Z"
    content = {"idempotency_key": "1", "bot_id": "bot_1", "bot_metadata": {"bb_bot_id": "b1", "who": "Zoë"}}
    content |= {"trigger": "bot.state_change", "data": data}
    headers = {"x-webhook-signature": sign_for_attendee(content)}
    first_event = provider.verify(headers, json.dumps(content, indent=2).encode(), NOW)
    assert first_event is not None
    assert (first_event.provider_id, first_event.bot_id) == ("bot_1", "b1")
    assert first_event.change is not None
    assert first_event.change.status == "waiting_room"
    again = {**content, "idempotency_key": "2"}
    second_event = provider.verify({"x-webhook-signature": sign_for_attendee(again)}, json.dumps(again).encode(), NOW)
    assert second_event is not None
    assert second_event.id == first_event.id
    for wrong in ({}, {"x-webhook-signature": sign_for_attendee({})}):
        with pytest.raises(HookRefused):
            provider.verify(wrong, json.dumps(content).encode(), NOW)
    with pytest.raises(HookRefused):
        Attendee(Egress(), "key", "", "").verify(headers, json.dumps(content).encode(), NOW)


def test_a_webhook_of_vexa_is_one_event_however_often_it_is_emitted() -> None:
    provider = Vexa(Egress(), "key", "", SECRET)
    meeting = {"id": 7, "platform": "google_meet", "native_meeting_id": "abc-defg-hij", "status": "completed"}
    stamp = str(int(NOW.timestamp()))
    ids = set()
    for event_id in ("evt_1", "evt_2"):
        body = json.dumps(
            {"event_id": event_id, "event_type": "meeting.completed", "data": {"meeting": meeting}}
        ).encode()
        digest = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, sha256).hexdigest()
        headers = {"x-webhook-timestamp": stamp, "x-webhook-signature": f"sha256={digest}"}
        first_event = provider.verify(headers, body, NOW)
        assert first_event is not None
        ids.add(first_event.id)
        with pytest.raises(HookRefused):
            provider.verify(headers, body + b" ", NOW)
        with pytest.raises(HookRefused):
            provider.verify(headers, body, datetime(2027, 1, 15, 10, tzinfo=UTC))
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("url", "meeting"),
    [
        ("https://meet.google.com/abc-defg-hij?authuser=0", ("google_meet", "abc-defg-hij", "")),
        ("https://us05web.zoom.us/j/12345678901?pwd=x", ("zoom", "12345678901", "x")),
        ("https://teams.live.com/meet/1234567890123?p=XYZ", ("teams", "1234567890123", "XYZ")),
        ("https://acme.webex.com/meet/ada", None),
        ("https://zoom.us/my/ada", None),
    ],
)
def test_vexa_reads_the_id_of_a_meeting_from_its_link(url: str, meeting: Any) -> None:
    assert parse_meeting(url) == meeting
