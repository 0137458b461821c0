"""What calls cost, to the nano-dollar, and that nobody spends what is not there."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from sqlalchemy import select, text

from baobab import composition
from baobab.runtime.gateway.model import Price
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.settings import load_settings
from baobab.tools.ai import metered_call
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.tables import credit_reservations
from baobab.tools.core.auth import tables
from baobab.tools.core.limits.money import MOST
from tests import jobs
from tests.backends import prepare_data, release_data
from tests.cli.server_process import run_server
from tests.clock import FixedClock
from tests.conftest import KEY
from tests.people import get_first_organisation
from tests.runtime.gateway.upstream import CannedAnswer
from tests.servers import TIMEOUT_SECONDS
from tests.tools.ai.conftest import HELLO, MINI, TEXT, VENDOR_KEY, Installation

USD = 10**9
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
ANSWER = json.dumps({"id": "1", "object": "chat.completion", "choices": [], "usage": USAGE})


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "playground", "BAOBAB_AI_MARKUP": "20"}


async def test_each_token_costs_its_price_and_the_markup(baobab: Installation) -> None:
    cached_model = baobab.add_model("cached:4")
    for model, cost in (
        (MINI, 11 * 180 + 7 * 720),
        (cached_model, 7 * 180 + 4 * 90 + 7 * 720),
        (baobab.add_model("long:1000"), 11 * 180 + 1000 * 720),
        ("baobab/echo", 0),
    ):
        before = await baobab.get_spent()
        answer = await baobab.chat(model)
        assert answer.headers["x-baobab-cost-usd"] == f"0.{cost:09d}"
        assert await baobab.get_spent() - before == cost
        if cost:
            await baobab.chat(model, stream=True)
            assert await baobab.get_spent() - before == 2 * cost
    settled_balance = await baobab.get_settled_balance()
    assert settled_balance.total == 1 * USD - await baobab.get_spent()


async def test_what_a_last_choice_says_was_used_counts(baobab: Installation) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {**USAGE, "cached_tokens": 4}}]}
    events = b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n"
    baobab.fake.canned_answers["choice"] = CannedAnswer(events, headers={"content-type": "text/event-stream"})
    assert await baobab.stream_events(baobab.add_model("said:choice")) == [last, "[DONE]"]
    assert await baobab.get_spent() == 7 * 180 + 4 * 90 + 7 * 720


async def test_what_costs_more_than_can_be_charged_is_charged_as_the_most() -> None:
    usage_meter = UsageMeter(prompt=10**8, completion=10**8)
    assert metered_call.cost(Price(10**21, 10**21), usage_meter) == MOST


async def test_what_the_provider_does_not_count_is_estimated(baobab: Installation) -> None:
    for stream in (False, True):
        await baobab.chat(baobab.add_model("no-usage"), stream=stream)
    (usage,) = await baobab.list_usage()
    assert usage.requests == 2
    # A token for four bytes of each answer at the least.
    assert usage.completion_tokens >= 2 * (len(TEXT) // 4)
    assert usage.prompt_tokens > 0


async def test_the_letters_of_a_picture_are_not_taken_for_tokens(baobab: Installation) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 800_000}"}}
    answer = await baobab.chat(baobab.add_model("no-usage"), messages=[{"role": "user", "content": [picture]}])
    assert answer.status_code == 200, answer.text
    (usage,) = await baobab.list_usage()
    assert usage.prompt_tokens == 8192  # all that the model can read


async def test_an_embedding_of_many_texts_is_more_than_a_conversation_may_be(baobab: Installation) -> None:
    model = baobab.add_model("500", modality="embedding")
    await baobab.credits.set_terms(await get_first_organisation(baobab), allowance=8192 * 150 * 2)
    body = {"model": model, "input": ["word " * 1000] * 30}
    answer = await baobab.client.post("/v1/embeddings", json=body, headers=baobab.owner)
    assert answer.status_code == 402


async def test_whoever_has_nothing_left_is_refused_before_anybody_is_asked(baobab: Installation) -> None:
    await baobab.credits.set_terms(await get_first_organisation(baobab), allowance=1000)
    app_id = await baobab.create_app()
    for path in ("/v1", f"/v1/{app_id}"):
        for stream in (False, True):
            answer = await baobab.chat(path=path, stream=stream)
            error = answer.json()["error"]
            assert (answer.status_code, error["type"], error["code"]) == (402, "billing_error", "insufficient_credits")
            assert (error["balance_usd"], error["credit_floor_usd"], error["credits_usd"]) == (1e-6, 0.0, 0.0)
            assert error["auto_refill_enabled"] is False
    embedding = {"input": "word " * 10_000, "model": "text-embedding-3-small"}
    refusal = await baobab.client.post("/v1/embeddings", json=embedding, headers=baobab.owner)
    assert refusal.status_code == 402
    assert not baobab.fake.requests
    # What is free goes on.
    assert (await baobab.chat("baobab/echo")).status_code == 200
    assert (await baobab.get_settled_balance()).total == 1000


@pytest.mark.parametrize("subject", ["app", "key"])
async def test_a_budget_that_is_spent_refuses_its_own_calls_and_no_others(baobab: Installation, subject: Any) -> None:
    organisation, app_id = await get_first_organisation(baobab), await baobab.create_app()
    response = await baobab.client.post("/api-keys", json={"name": "x", "scopes": ["ai:gateway"]}, headers=baobab.owner)
    key_headers = {"authorization": f"Bearer {response.json()['key']}"}
    mine = {"path": f"/v1/{app_id}"} if subject == "app" else {"by": key_headers}
    subject_id = app_id if subject == "app" else response.json()["key_id"]
    await baobab.credits.set_budget(organisation, subject, subject_id, "day", 5000)
    answer = await baobab.chat(**mine)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_credits")
    assert answer.json()["error"]["budget"]["subject_id"] == subject_id
    assert not baobab.fake.requests
    others: Any = {"by": key_headers} if subject == "app" else {"path": f"/v1/{app_id}"}
    assert (await baobab.chat(**others)).status_code == 200


async def test_users_of_an_app_are_not_told_what_its_organisation_has(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    user = await baobab.user_headers(app_id, "somebody")
    await baobab.credits.set_terms(await get_first_organisation(baobab), allowance=1000)
    answer = await baobab.chat(by=user, path=f"/v1/{app_id}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_credits")
    assert "usd" not in answer.text


async def test_an_answer_without_a_limit_is_set_aside_for_all_that_it_usually_has(baobab: Installation) -> None:
    # 4096 tokens of 720 nano-dollars are more; a model that writes 1024 at the most is less.
    await baobab.credits.set_terms(await get_first_organisation(baobab), allowance=2_900_000)
    assert (await baobab.chat()).status_code == 402
    assert (await baobab.chat(baobab.add_model("short"))).status_code == 200


async def test_an_answer_without_a_limit_is_given_no_more_than_was_set_aside(baobab: Installation) -> None:
    organisation = await get_first_organisation(baobab)
    for path, field in (("chat/completions", "max_completion_tokens"), ("responses", "max_output_tokens")):
        body: dict[str, Any] = {"model": MINI, "messages": HELLO} if field.startswith("max_c") else {"model": MINI}
        body |= {} if field.startswith("max_c") else {"input": "Hello!"}
        # A quarter of what is left: the model could write 16384 tokens of 720 nano-dollars.
        await baobab.credits.set_terms(organisation, allowance=await baobab.get_spent() + 20_000_000)
        answer = await baobab.client.post(f"/v1/{path}", json=body, headers=baobab.owner)
        assert answer.status_code == 200, answer.text
        most = baobab.fake.requests[-1].json[field]
        assert 5_000_000 - 20_000 <= most * 720 <= 5_000_000
        # Where there is enough for whatever the model writes, nothing is said.
        await baobab.credits.set_terms(organisation, allowance=USD)
        await baobab.client.post(f"/v1/{path}", json=body, headers=baobab.owner)
        assert field not in baobab.fake.requests[-1].json


async def test_a_refusal_says_whether_money_is_spent_or_set_aside_and_whose_it_is(baobab: Installation) -> None:
    organisation, app_id = await get_first_organisation(baobab), await baobab.create_app()

    async def catch_refusal(**body: Any) -> tuple[Any, Any, str]:
        answer = await baobab.chat(path=f"/v1/{app_id}", **body)
        assert answer.status_code == 402, answer.text
        error = answer.json()["error"]
        return error["exhausted"], error["reason"], error["message"]

    async with start_gate() as (gate, request_paths, url):
        model = baobab.add_model("held", server="held", url=url)
        await baobab.credits.set_budget(organisation, "app", app_id, "day", 1_000_000)
        call = asyncio.create_task(baobab.chat(model, path=f"/v1/{app_id}", max_tokens=1000))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not request_paths:
                await asyncio.sleep(0.01)
        assert (await catch_refusal(max_tokens=1000))[:2] == ("budget", "set_aside")
        assert (await catch_refusal(max_tokens=2000))[:2] == ("budget", "spent")
        await baobab.credits.delete_budget(organisation, "app", app_id, "day")
        await baobab.credits.set_terms(organisation, allowance=1_000_000)
        kind, reason, message = await catch_refusal(max_tokens=1000)
        assert (kind, reason) == ("credits", "set_aside")
        assert "calls that are running" in message
        assert (await catch_refusal(max_tokens=2000))[:2] == ("credits", "spent")
        gate.set()
        await call


async def test_several_answers_are_set_aside_for_as_many(baobab: Installation) -> None:
    # One of 1000 tokens fits, four do not.
    await baobab.credits.set_terms(await get_first_organisation(baobab), allowance=1_000_000)
    assert (await baobab.chat(max_tokens=1000, n=4)).status_code == 402
    assert (await baobab.chat(max_tokens=1000)).status_code == 200


async def test_of_many_at_once_exactly_those_pass_who_fit(baobab: Installation) -> None:
    async with start_gate() as (gate, request_paths, url):
        model = baobab.add_model("gate", server="gate", url=url)
        # The plan lets each of both take three hundred a minute.
        paths = ("/v1", f"/v1/{await baobab.create_app()}")
        calls = [asyncio.create_task(baobab.chat(model, max_tokens=13_850, path=path)) for path in paths * 200]
        refusal_count = 0
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for call in asyncio.as_completed(calls):
                assert (await call).status_code == 402
                refusal_count += 1
                if refusal_count == 300:
                    break
        gate.set()
        statuses = [answer.status_code for answer in await asyncio.gather(*calls)]
    assert (statuses.count(200), statuses.count(402)) == (100, 300)
    assert len(request_paths) == 100
    assert await baobab.get_spent() == 100 * (11 * 180 + 7 * 720)


@pytest.mark.parametrize("falls_back", [False, True])
async def test_what_cannot_be_given_back_for_now_hides_no_failure_and_keeps_nobody_from_answering(
    baobab: Installation, *, falls_back: bool
) -> None:
    app_id = await baobab.create_app()

    async def handle(request: web.BaseRequest) -> web.Response:
        # Between the two nothing that was set aside can be given back; something can be set aside.
        if (await request.json())["model"] == "refusing":
            await rename_column(baobab, "cost", "elsewhere")
            return web.Response(status=401)
        await rename_column(baobab, "elsewhere", "cost")
        return web.Response(text=ANSWER, content_type="application/json")

    async with serve_provider(handle) as url:
        refusing = baobab.add_model("refusing", server="away", url=url)
        works = baobab.add_model("works", server="away", url=url)
        config = {"fallbackModels": [works] if falls_back else []}
        await baobab.client.put(f"/v1/{app_id}/ai/config", json=config, headers=baobab.owner)
        answer = await baobab.chat(refusing, path=f"/v1/{app_id}", max_tokens=10)
    if not falls_back:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_denied")
        await rename_column(baobab, "elsewhere", "cost")
        return
    assert (answer.status_code, answer.headers["x-baobab-model"]) == (200, works)
    balance = await baobab.get_balance()
    assert balance.reserved_nanos > 0  # until its time is over
    assert balance.total == 1 * USD - (11 * 180 + 7 * 720)


async def rename_column(baobab: Installation, column: str, name: str) -> None:
    async with baobab.application.services.database.writing() as connection:
        # Any statement: SQLite looks at a table as the connection knows it, which may not be as it is.
        await connection.execute(text("SELECT count(*) FROM credit_reservations"))
        await connection.execute(text(f"ALTER TABLE credit_reservations RENAME COLUMN {column} TO {name}"))


async def test_what_is_set_aside_stays_so_for_as_long_as_an_answer_takes(
    baobab: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metered_call, "_RENEWED", 0.0001)

    async def ends() -> Any:
        async with baobab.application.services.database.reading() as connection:
            return (await connection.execute(select(credit_reservations.c.expires_at))).scalar_one()

    async with start_gate() as (gate, request_paths, url):
        call = asyncio.create_task(baobab.chat(baobab.add_model("gated", server="gated", url=url), max_tokens=1))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not request_paths:
                await asyncio.sleep(0.01)
        first = await ends()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await ends() <= first:
                await asyncio.sleep(0.01)
        gate.set()
        assert (await call).status_code == 200
    last = await ends()
    # Whose call has ended is not held anew.
    await asyncio.gather(*metered_call._renewing)
    assert await ends() == last


async def test_what_a_killed_server_had_set_aside_comes_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {
        **prepare_data(data),
        "BAOBAB_BOOTSTRAP_KEY": KEY,
        "BAOBAB_PLAN": "playground",
        "BAOBAB_AI_PROBE": "false",
    }
    async with start_gate() as (_, request_paths, url):
        provider = {"OPENAI_API_KEY": VENDOR_KEY, "OPENAI_BASE_URL": f"{url}/v1"}
        with run_server(data, settings={**settings, **provider}) as server:
            call = asyncio.create_task(post_chat(server.address))
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not request_paths:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(server.kill)
            with pytest.raises(httpx.TransportError):
                await call
    clock = FixedClock(time.time())
    async with composition.open_application(load_settings(settings, data=data), clock=clock) as application:
        (organisation,) = await list_organisations(application)
        assert (await application.services.part(Credits).balance(organisation)).reserved_nanos > 0
        await jobs.run_job(application, "credits_sweep")
        assert (await application.services.part(Credits).balance(organisation)).reserved_nanos > 0
        clock.advance(600)
        await jobs.run_job(application, "credits_sweep")
        balance = await application.services.part(Credits).balance(organisation)
    assert (balance.reserved_nanos, balance.total) == (0, 1 * USD)
    release_data(data)


async def post_chat(address: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        headers = {"authorization": f"Bearer {KEY}"}
        body = {"model": MINI, "messages": HELLO}
        return await client.post(f"{address}/v1/chat/completions", json=body, headers=headers)


async def list_organisations(application: composition.Application) -> list[str]:
    async with application.services.database.reading() as connection:
        return list((await connection.execute(select(tables.organisations.c.id))).scalars())


@contextlib.asynccontextmanager
async def start_gate() -> AsyncIterator[tuple[asyncio.Event, list[str], str]]:
    """A provider that answers nobody until it is opened; who has asked; its address."""
    gate, request_paths = asyncio.Event(), list[str]()

    async def handle(request: web.BaseRequest) -> web.Response:
        request_paths.append(request.path)
        await gate.wait()
        return web.Response(text=ANSWER, content_type="application/json")

    async with serve_provider(handle) as url:
        yield gate, request_paths, url


@contextlib.asynccontextmanager
async def serve_provider(handle: Callable[[web.BaseRequest], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """The address of a provider that answers so."""
    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
