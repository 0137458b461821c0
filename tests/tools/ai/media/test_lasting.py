"""A job that was accepted is made to its end, whatever fails on the way, and once."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from tests import jobs
from tests.backends import prepare_data
from tests.cli.server_process import ServerProcess, run_server
from tests.clock import FixedClock
from tests.conftest import KEY
from tests.tools.ai.media.conftest import BUILT_IN, IMAGE, VIDEO, Kind, MediaBaobab, open_media
from tests.tools.ai.media.studio import PNG, Studio

TIMEOUT_SECONDS = 120.0
KINDS: tuple[Kind, ...] = ("image", "video")


async def wait_until_entered(fake: Studio) -> None:
    """The provider has been asked to begin something, and has not answered yet."""
    await asyncio.wait_for(fake.arrival.wait(), TIMEOUT_SECONDS)
    fake.arrival.clear()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_starts_again_goes_on_with_what_was_asked_for(
    tmp_path: Path, fake: Studio, clock: FixedClock, settings: dict[str, str], kind: Kind
) -> None:
    data = tmp_path / "data"
    async with open_media(data, fake, clock, {**settings, "BAOBAB_JOBS": "0"}) as first:
        path = await first.submit_job(await first.create_app(), kind)
        assert (await first.poll(path))["status"] == "pending"
    async with open_media(data, fake, clock, settings) as second:
        job = await second.poll_at_end(path)
        assert (job["status"], job["model"]) == ("completed", BUILT_IN[kind])
        assert (await second.get(job["content_urls"][0])).status_code == 200


async def test_what_the_provider_has_not_accepted_is_begun_again_under_the_same_key(
    tmp_path: Path, fake: Studio, clock: FixedClock, settings: dict[str, str]
) -> None:
    data = tmp_path / "data"
    fake.going.clear()
    async with open_media(data, fake, clock, settings) as first:
        path = await first.submit_job(await first.create_app(), "video", model=VIDEO, duration=4)
        await wait_until_entered(fake)
        # It is stopped in the middle.
    fake.going.set()
    async with open_media(data, fake, clock, settings) as second:
        job = await second.poll_at_end(path)
        assert job["status"] == "completed"
        (usage,) = await second.list_usage()
        assert usage.requests == 1
    assert [one["key"] for one in fake.submissions] == [job["job_id"]] * 2


async def test_what_the_provider_has_accepted_is_not_begun_again(
    tmp_path: Path, fake: Studio, clock: FixedClock, settings: dict[str, str]
) -> None:
    data = tmp_path / "data"
    fake.videos = "in_progress"
    async with open_media(data, fake, clock, settings) as first:
        path = await first.submit_job(await first.create_app(), "video", model=VIDEO, duration=4)
        await first.run_due_jobs()
        assert (await first.get_row(path)).handle
    fake.videos = "completed"
    async with open_media(data, fake, clock, settings) as second:
        assert (await second.poll_at_end(path))["status"] == "completed"
    assert len(fake.submissions) == 1


async def test_a_download_that_breaks_off_is_made_again_and_nobody_sees_a_part(baobab: MediaBaobab) -> None:
    baobab.fake.cut = 2
    app = await baobab.create_app()
    job = await baobab.generate(app, "video", model=VIDEO, duration=4)
    assert job["status"] == "completed"
    assert baobab.fake.cut == 0
    assert (await baobab.get(job["content_urls"][0])).content == baobab.fake.file


@pytest.mark.parametrize("refusals", [[500], [503, 502, 500]])
async def test_a_provider_that_fails_for_a_while_is_asked_again(baobab: MediaBaobab, refusals: list[int]) -> None:
    baobab.fake.refusals = refusals
    job = await baobab.generate(await baobab.create_app(), "video", model=VIDEO, duration=4)
    assert job["status"] == "completed"
    assert baobab.fake.refusals == []


async def test_a_provider_that_fails_while_it_works_is_asked_again(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    await baobab.run_due_jobs()
    baobab.fake.refusals, baobab.fake.videos = [500, 429, 500, 500, 500, 500, 500, 500], "completed"
    job = await baobab.poll_at_end(path)
    assert job["status"] == "completed"
    assert len(baobab.fake.submissions) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "The model's provider failed."),
        (429, "The model's provider takes no more requests for now."),
        (401, "The model's provider does not accept this server's key."),
    ],
)
async def test_a_provider_that_goes_on_failing_fails_the_job_in_our_words(
    baobab: MediaBaobab, status: int, message: str
) -> None:
    baobab.fake.refusals = [status] * 50
    job = await baobab.generate(await baobab.create_app(), "image", model=IMAGE)
    assert (job["status"], job["charged_credits_usd"]) == ("failed", 0)
    assert message in job["error"]
    assert "sk-" not in job["error"]
    assert 1 <= len(baobab.fake.submissions) <= 6


async def test_what_the_provider_refuses_is_not_asked_again(baobab: MediaBaobab) -> None:
    baobab.fake.refusals = [400]
    job = await baobab.generate(await baobab.create_app(), "image", model=IMAGE)
    assert (job["status"], len(baobab.fake.submissions)) == ("failed", 1)


async def test_what_is_not_done_within_a_day_expires(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    await baobab.run_due_jobs()
    await baobab.run_due_jobs(86_300)
    assert (await baobab.poll(path))["status"] == "in_progress"
    await baobab.run_due_jobs(200)
    job = await baobab.poll(path)
    assert (job["status"], job["charged_credits_usd"]) == ("expired", 0)
    assert (await baobab.get_balance()).reserved_nanos == 0


async def test_what_was_done_while_the_server_was_away_is_kept_however_long_that_was(
    tmp_path: Path, fake: Studio, clock: FixedClock, settings: dict[str, str]
) -> None:
    data = tmp_path / "data"
    fake.videos = "in_progress"
    async with open_media(data, fake, clock, settings) as first:
        path = await first.submit_job(await first.create_app(), "video", model=VIDEO, duration=4)
        await first.run_due_jobs()
    fake.videos = "completed"
    clock.advance(3 * 86_400)
    async with open_media(data, fake, clock, settings) as second:
        assert (await second.poll_at_end(path))["status"] == "completed"


async def test_a_job_whose_worker_has_given_up_has_failed(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    await baobab.run_due_jobs()
    worker = (await baobab.get_row(path)).worker
    given_up = {"finished_at": baobab.clock.now(), "error": "Each attempt ended with the process that made it."}
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(update(jobs.jobs).where(jobs.jobs.c.id == worker).values(**given_up))
    await baobab.run_sweep(60)
    job = await baobab.poll(path)
    assert (job["status"], job["charged_credits_usd"]) == ("failed", 0)


async def test_an_approved_request_is_submitted_once(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    asking = {"name": "agent", "approval": "write"}
    response = await baobab.client.post("/api-keys", json=asking, headers=baobab.owner)
    agent = {"authorization": f"Bearer {response.json()['key']}"}
    held_response = await baobab.submit(app, "image", agent, model=IMAGE)
    assert held_response.status_code == 428, held_response.text
    assert baobab.fake.submissions == []
    approvals = (await baobab.get("/v1/approvals")).json()["approvals"]
    approval = approvals[0].get("approval_id") or approvals[0]["id"]
    approved_response = await baobab.client.post(f"/v1/approvals/{approval}/approve", json={}, headers=baobab.owner)
    assert approved_response.status_code == 200, approved_response.text
    await baobab.run_due_jobs()
    path = f"/v1/{app}/images/completions/{(await baobab.submit(app, 'image', agent, model=IMAGE)).json()['job_id']}"
    job = await baobab.poll_at_end(path, agent)
    assert (await baobab.get(job["content_urls"][0], agent)).content == PNG
    assert len(baobab.fake.submissions) == 1


async def test_what_a_killed_server_had_begun_is_made_once_and_paid_once(
    tmp_path: Path, fake: Studio, settings: dict[str, str]
) -> None:
    data = tmp_path / "data"
    fake.going.clear()
    variables = {**settings, **prepare_data(data), "BAOBAB_BOOTSTRAP_KEY": KEY}
    provider = {"OPENAI_API_KEY": "sk-vendor-0123456789", "OPENAI_BASE_URL": f"{fake.url}/v1"}
    owner = {"authorization": f"Bearer {KEY}"}

    async def asked_and_killed(server: ServerProcess) -> str:
        async with httpx.AsyncClient(base_url=server.address, headers=owner, timeout=TIMEOUT_SECONDS) as client:
            app = (await client.post("/init", json={"name": "shop"})).json()["app_id"]
            body = {"model": IMAGE, "prompt": "A baobab"}
            answer = await client.post(f"/v1/{app}/images/completions", json=body)
            assert answer.status_code == 202, answer.text
            await wait_until_entered(fake)
            server.kill()
            return f"/v1/{app}/images/completions/{answer.json()['job_id']}"

    with run_server(data, settings={**variables, **provider}) as server:
        path = await asked_and_killed(server)
    fake.going.set()
    # Later than anybody would hold the job.
    async with open_media(data, fake, FixedClock(time.time() + 60), settings) as application:
        job = await application.poll_at_end(path)
        assert job["status"] == "completed"
        assert (await application.get(job["content_urls"][0])).content == PNG
        (usage,) = await application.list_usage()
        assert (usage.requests, usage.cost) == (1, round(job["charged_credits_usd"] * 10**9))
        assert (await application.get_balance()).reserved_nanos == 0
        app = path.split("/")[2]
        assert len(await application.application.services.regions["local"].objects.list(f"{app}/", "", 10)) == 1
    assert [one["key"] for one in fake.submissions] == [job["job_id"]] * 2
