"""The page of jobs: what waits and what has failed, tried again and cancelled there."""

import pytest

from tests.conftest import Baobab
from tests.http.console.test_console import HOSTILE, sign_in
from tests.http.console.test_runs import Runner
from tests.tools.jobs.test_jobs import put_job

pytestmark = pytest.mark.own_installation


@pytest.fixture
async def visitor(baobab: Baobab) -> Runner:
    return Runner(baobab, "", await sign_in(baobab))


async def test_a_failed_job_shows_its_error_inert_and_is_tried_again(visitor: Runner) -> None:
    assert "Nothing is left to do" in (await visitor.open("/console/jobs")).text
    now = visitor.baobab.application.services.clock.now()
    arguments = {"finished_at": now, "error": f"ValueError: {HOSTILE}", "attempts": 8}
    await put_job(visitor.baobab, "hook:?&1", kind="nobody_knows", arguments={"<b>": HOSTILE}, **arguments)
    job_list = await visitor.open("/console/jobs?state=failed")
    assert 'href="/console/jobs/one?id=hook%3A%3F%261' in job_list.text
    page = await visitor.open("/console/jobs/one?id=hook%3A%3F%261")
    for text in (job_list.text, page.text):
        assert "<script>alert" not in text
    response = await visitor.send("/console/jobs/one/retry", page, id="hook:?&1")
    assert response.status_code == 303
    assert "waiting" in (await visitor.open(response.headers["location"])).text


async def test_a_job_says_what_it_does_and_for_which_app(visitor: Runner) -> None:
    app_id = await visitor.baobab.create_app()
    name = (await visitor.baobab.client.get(f"/v1/{app_id}/config", headers=visitor.baobab.owner)).json()["name"]
    await put_job(visitor.baobab, "one", kind="rag_prepare", arguments={"app_id": app_id, "document_id": "d"})
    await put_job(visitor.baobab, "two", kind="rag_prepare", arguments={"app_id": "app_gone00", "document_id": "d"})
    page = (await visitor.open("/console/jobs")).text
    assert "Prepares the next version of a document</a>" in page
    assert name in page
    assert "an app that is gone" in page
    assert app_id not in page


async def test_a_job_is_cancelled_where_it_may_be(visitor: Runner) -> None:
    await put_job(visitor.baobab, "hook:1")
    await put_job(visitor.baobab, "erase", kind="files_erase")
    assert "It has to be done" in (await visitor.open("/console/jobs/one?id=erase")).text
    page = await visitor.open("/console/jobs/one?id=hook:1")
    response = await visitor.send("/console/jobs/one/cancel", page, id="hook:1")
    assert "cancelled" in (await visitor.open(response.headers["location"])).text
    refusal = await visitor.send("/console/jobs/one/cancel", page, id="erase")
    assert refusal.status_code == 409
    assert "other data depends on it" in refusal.text
