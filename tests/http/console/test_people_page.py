"""The console's page of people: search, profile, e-mail lookups, usage and erasure, with the simulator."""

import pytest

from tests.conftest import Baobab
from tests.http.console.test_console import sign_in
from tests.http.console.test_runs import Runner
from tests.jobs import run_due_jobs

ADA = "https://network.example/in/ada-adeyemi-0"


@pytest.fixture
async def visitor(baobab: Baobab) -> Runner:
    return Runner(baobab, await baobab.create_app(), await sign_in(baobab))


async def test_people_are_searched_read_looked_up_and_erased(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/people"
    page = await visitor.open(path)
    assert "Nothing was looked up yet" in page.text
    answer = await visitor.send(f"{path}/search", page, kind="person", query="software engineers")
    assert answer.status_code == 200, answer.text
    assert "7 credits" in answer.text
    assert "simulated: free" in answer.text
    assert "More results" in answer.text
    companies = await visitor.send(f"{path}/search", page, kind="company", query="companies in Germany")
    assert "Kapok Software (invented)" in companies.text
    profile = await visitor.send(f"{path}/profile", page, url=ADA)
    assert "Ada Adeyemi" in profile.text
    assert "2 credits" in profile.text
    again = await visitor.send(f"{path}/profile", page, url=ADA)
    assert "from the cache: free" in again.text
    nobody = await visitor.send(f"{path}/profile", page, url="https://network.example/in/nobody")
    assert "There is no profile at this address" in nobody.text
    lookup = await visitor.send(f"{path}/email", page, url=ADA)
    assert (lookup.status_code, lookup.headers["location"]) == (303, f"{path}?queued=1#lookups")
    assert "The lookup is queued" in (await visitor.open(f"{path}?queued=1")).text
    await run_due_jobs(visitor.baobab.application)
    text = (await visitor.open(path)).text
    assert "profile cache hit" in text
    assert "$0.04" in text
    erasure = await visitor.send(f"{path}/erase", page, url=ADA)
    assert erasure.headers["location"].startswith(f"{path}?profiles=1&lookups=1&rows=")
    assert "Erased: 1 profiles, 1 lookups" in (await visitor.open(erasure.headers["location"])).text


async def test_a_search_of_a_page_that_another_site_sends_is_refused(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/people"
    answer = await visitor.baobab.client.get(f"{path}/search?query=x", headers=visitor.browser)
    assert answer.status_code == 404
