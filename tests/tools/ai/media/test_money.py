"""What images and videos cost: set aside at the request, charged at the first look at the end, once and exactly."""

import asyncio
from typing import Any

import pytest

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.tools.billing.ledger.credits import Credits
from tests.people import create_key, get_first_organisation
from tests.tools.ai.media.conftest import IMAGE, SECOND, VIDEO, MediaBaobab

USD = 10**9
CHARGED = 4 * SECOND * 120 // 100
"""Four seconds, and the markup."""
PICTURE = Price(0, 0, unit=40_000_000)
EACH = 48_000_000
"""A picture, and the markup."""


async def test_money_is_set_aside_at_once_and_charged_when_somebody_sees_the_end(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    path = await baobab.submit_job(app, "video", model=VIDEO, duration=4)
    assert (await baobab.get_balance()).reserved_nanos == CHARGED
    for _ in range(3):
        await baobab.run_due_jobs(1)
    # It is done, and nobody has looked.
    assert (await baobab.get_row(path)).status == "completed"
    assert (await baobab.get_balance()).total == 5 * USD
    job = await baobab.poll(path)
    assert job["charged_credits_usd"] == CHARGED / USD
    balance = await baobab.get_balance()
    assert (balance.total, balance.reserved_nanos) == (5 * USD - CHARGED, 0)
    usage = (await baobab.get(f"/v1/{app}/ai/usage", baobab.owner)).json()
    assert usage["byModel"][VIDEO] == {"tokens": 0, "cost": CHARGED / USD, "requests": 1}
    # Whoever looks again sees the same, and pays nothing more.
    assert await baobab.poll(path) == job
    assert (await baobab.get_balance()).total == 5 * USD - CHARGED


async def test_what_the_provider_says_was_used_counts_more_than_what_was_expected(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    path = await baobab.submit_job(app, "image", model=IMAGE, n=2)
    reserved_nanos = (await baobab.get_balance()).reserved_nanos
    job = await baobab.poll_at_end(path)
    # 10 tokens of text at 5 dollars a million, 1000 of images at 30, and the markup.
    assert job["charged_credits_usd"] == (10 * 5000 + 1000 * 30_000) * 120 // 100 / USD
    assert 0 < job["charged_credits_usd"] * USD < reserved_nanos
    assert len(job["content_urls"]) == 2


@pytest.mark.parametrize(("delivered_count", "charged_count"), [(1, 1), (2, 2), (3, 3), (5, 3)])
async def test_pictures_are_charged_as_they_are_delivered_and_never_more_than_was_set_aside(
    baobab: MediaBaobab, delivered_count: int, charged_count: int
) -> None:
    drawing = Model("openai/gpt-image-drawing", "Drawing", "image", PICTURE, None, None, IMAGE, "openai", frozenset())
    baobab.application.services.part(Gateway).catalogue.register_models("drawings", [drawing])
    baobab.fake.pictures = delivered_count
    path = await baobab.submit_job(await baobab.create_app(), "image", model=drawing.id, n=3)
    assert (await baobab.get_balance()).reserved_nanos == 3 * EACH
    job = await baobab.poll_at_end(path)
    assert (len(job["content_urls"]), job["charged_credits_usd"]) == (delivered_count, charged_count * EACH / USD)
    balance = await baobab.get_balance()
    assert (balance.total, balance.reserved_nanos) == (5 * USD - charged_count * EACH, 0)


async def test_tokens_of_pictures_beyond_what_was_set_aside_are_not_charged(baobab: MediaBaobab) -> None:
    # 500 tokens each, of which two pictures may have 2 * 4096.
    baobab.fake.pictures = 20
    path = await baobab.submit_job(await baobab.create_app(), "image", model=IMAGE, n=2, provider={"quality": "medium"})
    set_aside = (await baobab.get_balance()).reserved_nanos
    assert (await baobab.poll_at_end(path))["charged_credits_usd"] == set_aside / USD


async def test_many_who_see_the_end_at_once_pay_once(baobab: MediaBaobab) -> None:
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    for _ in range(3):
        await baobab.run_due_jobs(1)
    looks = [baobab.poll(path), baobab.get(f"{path}/content?index=0")] * 10
    answers: list[Any] = await asyncio.gather(*looks)
    assert len({job["settled_at"] for job in answers[::2]}) == 1
    assert {answer.status_code for answer in answers[1::2]} == {200}
    (usage,) = await baobab.list_usage()
    assert (usage.requests, usage.cost) == (1, CHARGED)


async def test_whoever_downloads_without_polling_pays_as_well(baobab: MediaBaobab) -> None:
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    for _ in range(3):
        await baobab.run_due_jobs(1)
    assert (await baobab.get(f"{path}/content")).content == baobab.fake.file
    assert (await baobab.get_balance()).total == 5 * USD - CHARGED
    assert (await baobab.poll(path))["charged_credits_usd"] == CHARGED / USD


@pytest.mark.parametrize("status", ["failed", "cancelled", "expired"])
async def test_what_came_to_nothing_costs_nothing(baobab: MediaBaobab, status: str) -> None:
    baobab.fake.videos, baobab.fake.error = status, {"code": "moderation", "message": "It shows a person."}
    job = await baobab.generate(await baobab.create_app(), "video", model=VIDEO, duration=4)
    assert (job["status"], job["error"], job["content_urls"]) == (status, "It shows a person.", [])
    assert job["charged_credits_usd"] == 0
    assert job["settled_at"] is not None
    balance = await baobab.get_balance()
    assert (balance.total, balance.reserved_nanos) == (5 * USD, 0)
    assert await baobab.list_usage() == []


async def test_money_for_a_job_that_nobody_looks_at_comes_back_and_is_charged_when_somebody_does(
    baobab: MediaBaobab,
) -> None:
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    await baobab.run_sweep(299)
    assert (await baobab.get_balance()).reserved_nanos == CHARGED
    await baobab.run_sweep(2)
    assert (await baobab.get_balance()).reserved_nanos == 0
    await baobab.run_sweep(86_400)
    assert (await baobab.poll(path))["charged_credits_usd"] == CHARGED / USD
    assert (await baobab.get_balance()).reserved_nanos == 0
    (usage,) = await baobab.list_usage()
    assert (usage.requests, usage.cost) == (1, CHARGED)


async def test_money_for_a_job_that_is_looked_at_stays_set_aside(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    for _ in range(6):
        await baobab.run_sweep(120)
        assert (await baobab.poll(path))["settled_at"] is None
    assert (await baobab.get_balance()).reserved_nanos == CHARGED


async def test_what_nobody_has_looked_at_while_its_files_were_kept_is_not_charged(baobab: MediaBaobab) -> None:
    path = await baobab.submit_job(await baobab.create_app(), "video", model=VIDEO, duration=4)
    await baobab.run_due_jobs()
    await baobab.run_due_jobs(1)
    await baobab.run_sweep(31 * 86_400)
    assert (await baobab.poll(path))["charged_credits_usd"] == 0
    assert await baobab.list_usage() == []


async def test_who_has_too_little_is_told_what_there_is_before_anything_is_begun(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    refusal = await baobab.submit(app, "video", model=VIDEO, duration=60)
    body = refusal.json()
    assert (refusal.status_code, body["code"]) == (402, "INSUFFICIENT_CREDITS")
    assert body["required_usd"] == 60 * SECOND * 1.2 / USD
    assert (body["balance_usd"], body["credit_floor_usd"], body["available_usd"]) == (5, 0, 5)
    assert (body["monthly_allowance_usd"], body["credits_usd"]) == (5, 0)
    assert (body["auto_refill_enabled"], body["auto_refill_amount_usd"]) == (False, None)
    # What an organisation has is not for the users of its apps.
    user = (await baobab.submit(app, "video", await baobab.user_headers(app, "ada"), model=VIDEO, duration=60)).json()
    assert user["code"] == "INSUFFICIENT_CREDITS"
    assert user.keys() <= {"code", "error", "remediation"} | {name for name in user if name.startswith("auto_refill")}
    await baobab.run_due_jobs(1)
    assert baobab.fake.submissions == []
    assert (await baobab.get_balance()).reserved_nanos == 0


async def test_jobs_at_once_spend_no_more_than_there_is(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    answers = await asyncio.gather(*(baobab.submit(app, "video", model=VIDEO, duration=10) for _ in range(8)))
    # Each costs 1.20 of the 5 dollars.
    assert sorted(answer.status_code for answer in answers) == [202] * 4 + [402] * 4


async def test_a_budget_of_the_app_bounds_its_videos(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    await baobab.application.services.part(Credits).set_budget(
        await get_first_organisation(baobab), "app", app, "day", CHARGED
    )
    assert (await baobab.submit(app, "video", model=VIDEO, duration=4)).status_code == 202
    refusal = await baobab.submit(app, "video", model=VIDEO, duration=4)
    assert (refusal.status_code, refusal.json()["code"]) == (402, "BUDGET_EXHAUSTED")


async def test_the_apps_organisation_pays_whoever_asks(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    for by in (await baobab.user_headers(app, "ada"), await create_key(baobab, key_scope="app", target_app_id=app)):
        before = (await baobab.get_balance()).total
        await baobab.generate(app, "video", by, model=VIDEO, duration=4)
        assert before is not None
        assert (await baobab.get_balance()).total == before - CHARGED
