"""Embeddings: the provider's and the built-in ones, as numbers and as text."""

import asyncio
import base64
import struct
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from baobab.runtime.gateway import built_in
from baobab.runtime.gateway.builtin.threads import THREADS
from tests.people import create_person, get_first_organisation
from tests.tools.ai.conftest import TIMEOUT_SECONDS, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL = "openai/text-embedding-3-small"


async def embed(world: Installation, **body: Any) -> Any:
    answer = await world.client.post("/v1/embeddings", json=body, headers=world.owner)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("model", [SMALL, None])
@pytest.mark.parametrize("text_input", ["one", ["one"], ["one", "two", "three"]])
async def test_each_text_has_its_vector_and_both_forms_are_the_same(
    world: Installation, model: Any, text_input: Any
) -> None:
    model_field = {} if model is None else {"model": model}
    numbers = (await embed(world, input=text_input, encoding_format="float", **model_field)).json()
    texts = (await embed(world, input=text_input, encoding_format="base64", **model_field)).json()
    assert numbers["object"] == "list"
    count = 1 if isinstance(text_input, str) else len(text_input)
    assert [one["index"] for one in numbers["data"]] == list(range(count))
    for one, other in zip(numbers["data"], texts["data"], strict=True):
        raw = base64.b64decode(other["embedding"])
        assert one["embedding"] == pytest.approx(struct.unpack(f"<{len(raw) // 4}f", raw), abs=1e-6)
    assert numbers["usage"] == texts["usage"]
    assert numbers["usage"]["total_tokens"] == numbers["usage"]["prompt_tokens"] > 0


async def test_what_a_provider_takes_beside_reaches_it_and_tokens_do_too(world: Installation) -> None:
    answer = await embed(world, input=[[1, 2], [3]], model=SMALL, dimensions=3, user="somebody", future_field=None)
    sent_body = world.fake.requests[-1].json
    assert sent_body == {
        "input": [[1, 2], [3]],
        "model": "text-embedding-3-small",
        "dimensions": 3,
        "user": "somebody",
        "future_field": None,
    }
    assert [len(one["embedding"]) for one in answer.json()["data"]] == [3, 3]


async def test_embeddings_cost_what_the_catalogue_says(world: Installation) -> None:
    before = await world.get_spent()
    answer = await embed(world, input=["one", "two"], model=SMALL)
    # 22 tokens at 20 nano-dollars.
    assert answer.headers["x-baobab-cost-usd"] == "0.000000440"
    assert await world.get_spent() == before + 440


async def test_the_built_in_ones_cost_nothing_and_take_no_tokens(world: Installation) -> None:
    before = await world.get_spent()
    answer = await embed(world, input="Hello!")
    assert answer.headers["x-baobab-cost-usd"] == "0.000000000"
    assert await world.get_spent() == before
    refusal = await world.client.post("/v1/embeddings", json={"input": [1, 2]}, headers=world.owner)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_text_means_what_its_neighbours_mean(world: Installation) -> None:
    texts = ["How do I get my money back?", "how do i get my money back", "The cat sat on the mat."]
    vectors = [one["embedding"] for one in (await embed(world, input=texts)).json()["data"]]

    def closeness(one: int, other: int) -> float:
        product: float = sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))
        return product

    assert closeness(0, 1) > closeness(0, 2)


@pytest.mark.parametrize("wrong", [{"input": None}, {"input": {"text": "x"}}, {"input": ["x"] * 2049}, {"model": "x"}])
async def test_what_is_no_text_is_refused(world: Installation, wrong: dict[str, Any]) -> None:
    answer = await world.client.post("/v1/embeddings", json=wrong, headers=world.owner)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("texts", [["x" * 100_001] * 2, ["x" * 100] * 2001])
async def test_the_built_in_ones_take_no_more_than_they_can_do_soon(world: Installation, texts: Any) -> None:
    answer = await world.client.post("/v1/embeddings", json={"input": texts}, headers=world.owner)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", "input")


@pytest.mark.parametrize(
    ("body", "at_fault"), [({"input": []}, "input"), ({"input": "x", "dimensions": 64}, "dimensions")]
)
async def test_no_text_and_other_dimensions_are_refused_by_the_field(
    world: Installation, body: dict[str, Any], at_fault: str
) -> None:
    answer = await world.client.post("/v1/embeddings", json=body, headers=world.owner)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, at_fault)
    response = await world.client.post("/v1/embeddings", json={"input": "x", "dimensions": 384}, headers=world.owner)
    assert response.status_code == 200


async def test_a_text_has_its_own_vector_among_many(world: Installation) -> None:
    texts = [f"number {number}" for number in range(40)]
    data = (await embed(world, input=texts)).json()["data"]
    assert [one["index"] for one in data] == list(range(40))
    for number in (0, 15, 16, 39):
        alone = (await embed(world, input=texts[number])).json()["data"][0]
        assert data[number]["embedding"] == pytest.approx(alone["embedding"], abs=1e-5)


async def test_who_asks_too_much_is_told_to_come_again_and_others_are_served_in_turn(
    world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_texts: list[str] = []
    embed_piece = built_in._embed_piece

    def note(embedder: Any, texts: Sequence[str], *, as_text: bool) -> Any:
        embedded_texts.extend(texts)
        return embed_piece(embedder, texts, as_text=as_text)

    monkeypatch.setattr(built_in, "_embed_piece", note)
    long = [{"role": "user", "content": "word " * 30_000}]
    go_on = threading.Event()
    occupied_task = asyncio.create_task(THREADS.run_work(go_on.wait))
    mine, other = await get_first_organisation(world), (await create_person(world, "other")).headers

    async def ask(by: Any = world.owner, text: str = "Hello!") -> httpx.Response:
        return await world.client.post("/v1/embeddings", json={"input": text}, headers=by)

    nine = [asyncio.create_task(ask()) for _ in range(9)]
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not THREADS.is_full(mine):
                await asyncio.sleep(0.001)
        for refusal in (await ask(), await world.chat("baobab/echo", messages=long)):
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "service_unavailable")
            assert refusal.headers["retry-after"]
        # What is soon done does not stand in line.
        assert (await world.chat("baobab/echo")).status_code == 200
        another = asyncio.create_task(ask(other, "Good day!"))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(THREADS._waiting) < 2:
                await asyncio.sleep(0.001)
    finally:
        go_on.set()
    assert [answer.status_code for answer in await asyncio.gather(another, *nine)] == [200] * 10
    # Though it came last, it does not wait for all that the first has asked.
    assert embedded_texts[-1] == "Hello!"
    assert sorted(embedded_texts) == ["Good day!", *["Hello!"] * 9]
    assert (await world.chat("baobab/echo", messages=long)).status_code == 200
    await occupied_task


async def test_nothing_is_done_any_more_for_whoever_has_gone(world: Installation) -> None:
    go_on, results = threading.Event(), []
    task = asyncio.create_task(THREADS.run_work(go_on.wait))
    waiting = asyncio.create_task(THREADS.run_work(lambda: results.append("in vain")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await task
    await embed(world, input="Hello!")
    assert results == []


async def test_a_large_body_without_a_credential_is_refused_while_it_is_being_sent(world: Installation) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        for _ in range(2):
            answer = await client.post(f"{world.address}/v1/embeddings", json={"input": "x" * 4_000_000})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "missing_credentials")
