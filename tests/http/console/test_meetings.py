"""The pages of meeting bots: send one, see what it does, read what was said, and make one leave."""

import re
from html import unescape
from pathlib import Path

import pytest

from baobab.http.console.console import find_origin
from baobab.http.console.pages.meetings import build_captions
from tests.http.console.test_console import sign_in
from tests.http.console.test_runs import Runner
from tests.tools.ai.meetings.conftest import MEETING, open_meetings
from tests.tools.ai.meetings.test_calendars import open_office


async def test_a_bot_is_sent_watched_and_read_in_the_console(tmp_path: Path) -> None:
    async with open_meetings(tmp_path) as baobab:
        app = await baobab.create_app()
        visitor = Runner(baobab, app, await sign_in(baobab))
        path = f"/console/apps/{app}/meetings"
        page = await visitor.open(path)
        assert "No call yet" in page.text
        answer = await visitor.send(f"{path}/start", page, meetingUrl=MEETING)
        assert answer.status_code == 303, answer.text
        bot_path = answer.headers["location"]
        joining_page = await visitor.open(bot_path)
        assert "joining" in joining_page.text
        assert "data-again" in joining_page.text
        assert "media-src" not in joining_page.headers["content-security-policy"]
        for _ in range(40):
            await baobab.advance(1)
        bot_page = await visitor.open(bot_path)
        text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", bot_page.text)))
        assert "Ada Lovelace , 00:00 Good morning. Shall we look at the engine first?" in text
        assert "20 seconds" in text
        assert "Make it leave" not in text
        assert "data-again" not in bot_page.text
        listed_page = await visitor.open(path)
        assert f'href="{bot_path}"' in listed_page.text
        answer = await visitor.send(f"{path}/start", listed_page, meetingUrl=f"{MEETING}?simulate_seconds=3600")
        await baobab.advance(10)
        running_page = await visitor.open(answer.headers["location"])
        answer = await visitor.send(f"{answer.headers['location']}/stop", running_page)
        assert answer.status_code == 303
        for _ in range(5):
            await baobab.advance(1)
        assert "The bot was told to leave." in unescape((await visitor.open(answer.headers["location"])).text)


async def test_the_recording_is_played_with_what_was_said_as_captions(tmp_path: Path) -> None:
    async with open_meetings(tmp_path) as baobab:
        app = await baobab.create_app()
        visitor = Runner(baobab, app, await sign_in(baobab))
        bot = await baobab.start(app)
        await baobab.advance(60)
        path = f"/console/apps/{app}/meetings/{bot['id']}"
        page = await visitor.open(path)
        [source] = re.findall(r'<video[^>]* src="([^"]+)"', page.text)
        origin = "/".join(source.split("/")[:3])
        assert f"; media-src 'self' {origin}" in page.headers["content-security-policy"]
        assert (await baobab.client.get(unescape(source))).headers["content-type"] == "video/mp4"
        assert re.findall(r'<li class="row" data-at="([0-9.]+)"', page.text)[:2] == ["0.0", "3.6"]
        [track] = re.findall(r'<track[^>]* src="([^"]+)"', page.text)
        captions = await visitor.open(track)
        assert captions.headers["content-type"].startswith("text/vtt")
        first = "00:00:00.000 --> 00:00:03.600\nAda Lovelace: Good morning. Shall we look at the engine first?"
        assert captions.text.startswith(f"WEBVTT\n\n{first}\n\n")


def test_captions_have_nothing_of_what_is_said_but_text() -> None:
    words = [{"text": "<b>a --> b</b>\n\n&c", "start": 3700.0, "end": 3700.0}]
    captions = build_captions([{"participant": {"id": "1", "name": "Eve"}, "words": words}])
    assert captions == "WEBVTT\n\n01:01:40.000 --> 01:01:41.000\nEve: &lt;b&gt;a --&gt; b&lt;/b&gt; &amp;c\n"


@pytest.mark.parametrize("url", ["https://a.example;script-src *", "https://a.example 'unsafe-inline'/x", "blob:x"])
def test_no_address_of_a_recording_writes_a_policy(url: str) -> None:
    assert find_origin(url) == ""
    assert find_origin("https://media.example:8443/a?b") == " https://media.example:8443"


async def test_an_admin_says_in_a_form_what_becomes_of_transcripts(tmp_path: Path) -> None:
    async with open_meetings(tmp_path) as baobab:
        app = await baobab.create_app()
        await baobab.request("POST", f"/v1/{app}/rag/collections", json={"name": "calls"})
        visitor = Runner(baobab, app, await sign_in(baobab))
        path = f"/console/apps/{app}/meetings"
        page = await visitor.open(path)
        answer = await visitor.send(f"{path}/transcripts", page, collection="calls", agent="")
        assert answer.status_code == 303, answer.text
        assert "organisation's memory" not in page.text, "a key does not open it"
        settings = (await baobab.request("GET", baobab.path(app, "transcripts"))).json()
        assert (settings["collection"], settings["agent"], settings["substrate"]) == ("calls", None, False)
        assert '<option value="calls" selected>' in (await visitor.open(path)).text


async def test_an_admin_has_bots_sent_by_a_connected_calendar_and_switches_it_off(tmp_path: Path) -> None:
    async with open_office(tmp_path / "data") as office:
        visitor = Runner(office.meetings, office.app, await sign_in(office.meetings))
        path = f"/console/apps/{office.app}/meetings"
        page = await visitor.open(path)
        [choice] = re.findall(r'<option value="(google-calendar [^"]+)"', page.text)
        answer = await visitor.send(
            f"{path}/calendars", page, calendar=choice, title_contains="standup", most_a_day="3"
        )
        assert answer.status_code == 303, answer.text
        calendar = await office.read_calendar()
        assert (calendar["enabled"], calendar["title_contains"], calendar["most_a_day"]) == (True, "standup", 3)
        await office.invite(5, "Standup of <b>today</b>")
        await office.read_calendar_now()
        page = await visitor.open(path)
        assert "Standup of &lt;b&gt;today&lt;/b&gt;" in page.text
        assert "planned" in page.text
        switch = f"{path}/calendars/{calendar['id']}/switch"
        assert (await visitor.send(switch, page)).status_code == 303
        changed_calendar = await office.read_calendar()
        assert (changed_calendar["enabled"], changed_calendar["title_contains"]) == (False, "standup")
        page = await visitor.open(path)
        assert (await visitor.send(f"{path}/calendars/{calendar['id']}/delete", page)).status_code == 303
        assert "No calendar sends bots." in (await visitor.open(path)).text


async def test_a_link_that_is_none_of_a_meeting_is_refused_in_words(tmp_path: Path) -> None:
    async with open_meetings(tmp_path) as baobab:
        app = await baobab.create_app()
        visitor = Runner(baobab, app, await sign_in(baobab))
        path = f"/console/apps/{app}/meetings"
        answer = await visitor.send(f"{path}/start", await visitor.open(path), meetingUrl="https://example.com/call")
        assert answer.status_code == 400
        assert "meeting" in answer.text
