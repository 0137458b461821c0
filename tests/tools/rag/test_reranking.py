"""A model puts what was found in order, and nothing that was found is lost to what it says."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import FixedClock
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import Installation, open_installation
from tests.tools.rag.conftest import FACTS, RagApp


@pytest.fixture
async def world(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Installation]:
    variables = {**settings, "BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.0/8"}
    async with open_installation(tmp_path / "data", variables) as installation:
        yield installation


def answer_with(text: str) -> CannedAnswer:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return CannedAnswer(json.dumps(answer).encode())


async def test_a_model_puts_chunks_in_order(world: Installation) -> None:
    app = RagApp(world, FixedClock(), await world.create_app())
    ids = await app.ingest_facts()
    question = "wild yeast in sourdough bread"
    plain = await app.find(question)
    assert (plain[0], set(plain)) == (ids["bread"], set(ids.values()))
    for model_answer, order in (
        ("3, 1, 2", [2, 0, 1]),
        ("The best is 2.", [1, 0, 2]),
        ("99, 3, 3", [2, 0, 1]),
        ("?", [0, 1, 2]),
    ):
        world.fake.canned_answers["order"] = answer_with(model_answer)
        document_ids = await app.find(question, rerank=True, model=world.add_model("said:order"))
        assert document_ids == [plain[place] for place in order], model_answer
    world.fake.canned_answers["order"] = answer_with("3, 1, 2")
    assert await app.find(question, rerank=True, model=world.add_model("said:order"), topK=1) == [plain[2]]
    request_text = str(world.fake.requests[-1].json)
    assert question in request_text
    assert FACTS["ships"] in request_text
