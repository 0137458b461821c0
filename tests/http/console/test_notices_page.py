"""The page of notices: where a person is told, what and when."""

import re

import pytest

from tests.http.console.test_runs import Runner

pytestmark = pytest.mark.own_installation


async def test_a_channel_is_added_its_secret_is_shown_once_and_it_is_removed(visitor: Runner) -> None:
    page = await visitor.open("/console/notices")
    assert "Nowhere yet" in page.text
    fields = {"kind": "webhook", "url": "https://example.com/secret-path", "name": "<b>pager</b>"}
    response = await visitor.send("/console/notices/channels", page, **fields)
    assert re.findall(r">(whsec_[^<]+)</pre>", response.text)
    page_text = (await visitor.open("/console/notices")).text
    assert "whsec_" not in page_text
    assert "secret-path" not in page_text
    assert "&lt;b&gt;pager" in page_text
    (path,) = re.findall(r'action="(/console/notices/channels/[^"]+/remove)"', page_text)
    assert (await visitor.send(path, page)).status_code == 303
    assert "Nowhere yet" in (await visitor.open("/console/notices")).text


async def test_quiet_hours_and_the_digest_are_kept(visitor: Runner) -> None:
    page = await visitor.open("/console/notices")
    fields = {"which": "all", "digest_minutes": "60", "begin": "22:00", "end": "07:00", "time_zone": "Europe/Prague"}
    response = await visitor.send("/console/notices/save", page, after_minutes="60", other="", **fields)
    assert response.headers["location"] == "/console/notices?saved=1"
    text = (await visitor.open("/console/notices")).text
    assert 'value="22:00"' in text
    assert '<option value="60" selected>' in text
    wrong = await visitor.send(
        "/console/notices/save", page, after_minutes="60", other="", **{**fields, "time_zone": "Mars/Olympus"}
    )
    assert "There is no time zone Mars/Olympus" in wrong.text
