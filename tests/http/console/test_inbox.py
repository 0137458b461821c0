"""The inbox: calls in groups, one open beside the list, some put off, and what was decided."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from baobab.tools.approvals.tables import approvals
from tests.conftest import Baobab
from tests.http.console.test_console import OWN, find_csrf, propose, sign_in
from tests.http.console.test_runs import Runner, build_graph
from tests.jobs import let_decisions_count, run_due_jobs

pytestmark = pytest.mark.own_installation


@pytest.fixture
async def desk(baobab: Baobab) -> Runner:
    """An app whose agent `asker` asks before it stores a key, and a browser."""
    opened_desk = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    await opened_desk.create_agent("asker", build_graph(asks=True))
    return opened_desk


async def list_ids(desk: Runner, query: str = "") -> list[str]:
    """The ids of the calls in the list, in its order."""
    return re.findall(r'<li class="row \w+" id="(appr_\w+)"', (await desk.open(f"/console{query}")).text)


async def ask(desk: Runner, *keys: str) -> dict[str, str]:
    """Has the agent ask for each key; the ids of its calls."""
    for key in keys:
        await desk.run("asker", key=key)
    response = await desk.baobab.client.get("/v1/approvals?status=pending&limit=500", headers=desk.baobab.owner)
    rows = response.json()["approvals"]
    return {key: row["id"] for key in keys for row in rows if f'"{key}"' in row["title"]}


async def change(desk: Runner, approval_id: str, **values: Any) -> None:
    async with desk.baobab.application.services.database.writing() as connection:
        await connection.execute(update(approvals).where(approvals.c.id == approval_id).values(**values))


async def test_calls_stand_in_groups_with_their_count_and_what_expires_first_is_on_top(desk: Runner) -> None:
    by_key = await propose(desk.baobab, "nightly")
    ids = await ask(desk, "a", "b", "c")
    now = desk.baobab.application.services.clock.now()
    await change(desk, ids["c"], expires_at=now.replace(year=now.year + 1))
    page = (await desk.open("/console")).text
    assert "<title>(4) Inbox" in page
    assert [re.sub(r"<[^>]+>", "", words).split() for words in re.findall(r"<h2 id=.group-.*?</h2>", page)] == [
        ["N", "API", "key", "nightly", "Changes", "·", "1"],
        ["A", "Agent", "asker", "Changes", "·", "3", "Review", "together"],
    ]
    assert (await list_ids(desk))[-1] == ids["c"]
    await change(desk, by_key, expires_at=now.replace(year=now.year + 2))
    assert (await list_ids(desk))[-1] == by_key


async def test_the_time_that_is_left_is_said_only_where_it_is_short(desk: Runner) -> None:
    (approval_id,) = (await ask(desk, "a")).values()
    assert " left</span>" not in (await desk.open("/console")).text
    clock = desk.baobab.application.services.clock
    await change(desk, approval_id, expires_at=clock.now() + timedelta(minutes=100))
    assert "1 hour left</span>" in (await desk.open("/console")).text


async def test_the_list_is_filtered_by_kind_and_agent(desk: Runner) -> None:
    by_key = await propose(desk.baobab, "nightly")
    (of_agent,) = (await ask(desk, "a")).values()
    page = (await desk.open("/console")).text
    agents = re.findall(r'href="/console(\?agent=[^"]+)"', page)
    assert len(agents) == 2
    assert sorted([await list_ids(desk, agent) for agent in agents]) == sorted([[by_key], [of_agent]])
    assert await list_ids(desk, "?kind=question") == []
    assert "No call matches." in (await desk.open("/console?kind=question")).text


async def test_two_agents_of_one_name_are_told_apart_by_their_apps(desk: Runner) -> None:
    other_desk = Runner(desk.baobab, await desk.baobab.create_app(), desk.browser)
    await other_desk.create_agent("asker", build_graph(asks=True))
    await desk.run("asker", key="a")
    await other_desk.run("asker", key="b")
    page = (await desk.open("/console")).text
    words = re.findall(r'href="/console\?agent=[^"]+"[^>]*>([^<]+)</a>', page)
    assert len(set(words)) == 2
    assert all(each.startswith("asker (") for each in words), words


async def test_a_call_is_read_beside_the_list_and_the_next_one_follows_the_decision(desk: Runner) -> None:
    ids = await ask(desk, "a", "b", "c")
    order = await list_ids(desk)
    assert set(order) == set(ids.values())
    page = await desk.open(f"/console?open={order[1]}")
    assert f'action="/console/approvals/{order[1]}/approve"' in page.text
    assert "2 of 3" in page.text
    assert f'rel="next" href="/console?open={order[2]}"' in page.text
    assert page.text.count("<html") == 1
    came_from = {"referer": f"{OWN['origin']}/console?open={order[1]}"}
    form = {"csrf": find_csrf(page)}
    path = f"/console/approvals/{order[1]}/approve"
    response = await desk.baobab.client.post(path, data=form, headers={**desk.browser, **came_from})
    assert response.headers["location"] == f"/console?open={order[2]}"
    following = (await desk.open(f"/console?open={order[2]}")).text
    assert "2 of 2 · 1 done" in following
    assert "10 s to take it back" in following
    # From the page of a call, the page of the next one opens.
    came_from = {"referer": f"{OWN['origin']}/console/approvals/{order[2]}"}
    path = f"/console/approvals/{order[2]}/approve"
    response = await desk.baobab.client.post(path, data=form, headers={**desk.browser, **came_from})
    assert response.headers["location"] == f"/console/approvals/{order[0]}"


async def test_a_call_that_is_put_off_is_back_by_itself_and_before_it_expires(desk: Runner) -> None:
    ids = await ask(desk, "a", "b")
    page = await desk.open("/console")
    response = await desk.send("/console/approvals/snooze", page, ids=ids["a"], minutes="1440")
    assert response.status_code == 303
    assert await list_ids(desk) == [ids["b"]]
    page = await desk.open("/console")
    assert "1 put off until later" in page.text
    approval = (await desk.baobab.client.get(f"/v1/approvals/{ids['a']}", headers=desk.baobab.owner)).json()
    (back,) = re.findall(r'back <time datetime="([^"]+)"', page.text)
    expires_at = datetime.fromisoformat(approval["approval"]["expires_at"])
    assert expires_at - datetime.fromisoformat(back) >= timedelta(hours=1)
    (seconds,) = re.findall(r'data-again="(\d+)"', page.text)
    assert int(seconds) > 0, "the page asks again by itself"
    await desk.send("/console/approvals/snooze", page, ids=ids["a"], minutes="0")
    assert set(await list_ids(desk)) == set(ids.values())
    # Within its last hour a call is not put off.
    await change(desk, ids["a"], expires_at=desk.baobab.application.services.clock.now() + timedelta(minutes=50))
    refusal = await desk.send("/console/approvals/snooze", page, ids=ids["a"], minutes="60")
    assert "cannot be put off" in refusal.text


async def test_calls_of_one_step_are_approved_together_but_never_those_that_could_do_harm(desk: Runner) -> None:
    ids = await ask(desk, "a", "b", "c", "d")
    await change(desk, ids["b"], tainted=True)
    await change(desk, ids["c"], effect="external")
    page = (await desk.open(f"/console/approvals/{ids['a']}/alike")).text
    assert set(re.findall(r'name="call\.(\w+)"', page)) == {ids["a"], ids["d"]}
    for key in ("b", "c"):
        alone = (await desk.open(f"/console/approvals/{ids[key]}/alike")).text
        assert "can be approved together" in alone


async def test_what_was_decided_says_by_whom_when_and_in_which_words(desk: Runner) -> None:
    ids = await ask(desk, "a", "b")
    page = await desk.open("/console")
    await desk.send(f"/console/approvals/{ids['a']}/reject", page, reason="Other person first")
    await desk.send(f"/console/approvals/{ids['b']}/approve", page)
    await let_decisions_count(desk.baobab.application)
    await run_due_jobs(desk.baobab.application)
    decided_page = (await desk.open("/console/decided")).text
    assert re.search(
        r'Denied by <span class="name">[^<]+</span>: <q class="theirs">Other person first</q>', decided_page
    )
    assert "Approved by <span" in decided_page
    denied_page = (await desk.open("/console/decided?status=rejected")).text
    assert (ids["a"] in denied_page, ids["b"] in denied_page) == (True, False)


async def test_an_empty_inbox_offers_notifications(desk: Runner) -> None:
    page = (await desk.open("/console")).text
    assert "Requests that need your approval appear here. Turn on notifications so that you do not miss one." in page
    assert "curl" not in page


async def test_every_page_has_the_number_of_waiting_calls_in_its_title(desk: Runner) -> None:
    await ask(desk, "a", "b")
    for path in ("/console/apps", f"/console/apps/{desk.app_id}/kv", "/console/account"):
        assert "<title>(2) " in (await desk.open(path)).text, path


async def test_the_calls_before_and_after_one_are_those_of_the_list(desk: Runner) -> None:
    await propose(desk.baobab, "nightly")
    await ask(desk, "a", "b", "c")
    for query in ("", "?kind=change"):
        ids = await list_ids(desk, query)
        for place, approval_id in enumerate(ids):
            page = (await desk.open(f"/console/approvals/{approval_id}{query}")).text
            assert f"{place + 1} of {len(ids)}" in page
            following = re.search(r'rel="next" href="/console/approvals/(\w+)', page)
            assert (following[1] if following else None) == dict(enumerate(ids)).get(place + 1)
