"""Embeddings: the provider's and the built-in ones, as numbers and as text."""

import base64
import struct
from typing import Any

import pytest

from tests.tools.ai.conftest import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL = "openai/text-embedding-3-small"


async def embed(world: Installation, **body: Any) -> Any:
    answer = await world.client.post("/v1/embeddings", json=body, headers=world.owner)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("model", [SMALL, None])
@pytest.mark.parametrize("given", ["one", ["one"], ["one", "two", "three"]])
async def test_each_text_has_its_vector_and_both_forms_are_the_same(
    world: Installation, model: Any, given: Any
) -> None:
    named = {} if model is None else {"model": model}
    numbers = (await embed(world, input=given, encoding_format="float", **named)).json()
    texts = (await embed(world, input=given, encoding_format="base64", **named)).json()
    assert numbers["object"] == "list"
    assert [one["index"] for one in numbers["data"]] == list(range(1 if isinstance(given, str) else len(given)))
    for one, other in zip(numbers["data"], texts["data"], strict=True):
        raw = base64.b64decode(other["embedding"])
        assert one["embedding"] == pytest.approx(struct.unpack(f"<{len(raw) // 4}f", raw), abs=1e-6)
    assert numbers["usage"] == texts["usage"]
    assert numbers["usage"]["total_tokens"] == numbers["usage"]["prompt_tokens"] > 0


async def test_what_a_provider_takes_beside_reaches_it_and_tokens_do_too(world: Installation) -> None:
    answer = await embed(world, input=[[1, 2], [3]], model=SMALL, dimensions=3, user="somebody", future_field=None)
    sent = world.fake.requests[-1].json
    assert sent == {
        "input": [[1, 2], [3]],
        "model": "text-embedding-3-small",
        "dimensions": 3,
        "user": "somebody",
        "future_field": None,
    }
    assert [len(one["embedding"]) for one in answer.json()["data"]] == [3, 3]


async def test_embeddings_cost_what_the_catalogue_says(world: Installation) -> None:
    before = await world.spent()
    answer = await embed(world, input=["one", "two"], model=SMALL)
    # 22 tokens at 20 nano-dollars.
    assert answer.headers["x-baobab-cost-usd"] == "0.000000440"
    assert await world.spent() == before + 440


async def test_the_built_in_ones_cost_nothing_and_take_no_tokens(world: Installation) -> None:
    before = await world.spent()
    answer = await embed(world, input="Hello!")
    assert answer.headers["x-baobab-cost-usd"] == "0.000000000"
    assert await world.spent() == before
    refused = await world.client.post("/v1/embeddings", json={"input": [1, 2]}, headers=world.owner)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_text_means_what_its_neighbours_mean(world: Installation) -> None:
    given = ["How do I get my money back?", "how do i get my money back", "The cat sat on the mat."]
    vectors = [one["embedding"] for one in (await embed(world, input=given)).json()["data"]]

    def closeness(one: int, other: int) -> float:
        return sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))

    assert closeness(0, 1) > closeness(0, 2)


@pytest.mark.parametrize("wrong", [{"input": None}, {"input": {"text": "x"}}, {"input": ["x"] * 2049}, {"model": "x"}])
async def test_what_is_no_text_is_refused(world: Installation, wrong: dict[str, Any]) -> None:
    answer = await world.client.post("/v1/embeddings", json=wrong, headers=world.owner)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
