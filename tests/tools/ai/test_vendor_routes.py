"""Routes of OpenAI's and Anthropic's that are not here say so, in the words that their clients read."""

import re

import anthropic
import openai
import pytest

from baobab.tools.system.missing_routes import VENDOR_ROUTES
from tests.tools.ai.conftest import HELLO, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_openais_client_reads_that_a_route_is_not_here(world: Installation) -> None:
    async with world.build_client(max_retries=0) as client:
        with pytest.raises(openai.NotFoundError) as refusal:
            await client.audio.speech.create(model="tts-1", voice="alloy", input="Hello")
        assert "Not here: speech and transcription" in refusal.value.message
        # The body is a form with a file, not JSON.
        with pytest.raises(openai.NotFoundError):
            await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"RIFF"))
        with pytest.raises(openai.NotFoundError):
            await client.files.create(file=("a.txt", b"Hello"), purpose="assistants")
        with pytest.raises(openai.NotFoundError) as refusal:
            await client.responses.input_items.list("resp_1")
        assert "previous_response_id" in refusal.value.message


async def test_anthropics_client_reads_that_a_route_is_not_here(world: Installation) -> None:
    async with anthropic.AsyncAnthropic(base_url=world.address, api_key=world.key, max_retries=0) as client:
        with pytest.raises(anthropic.NotFoundError) as refusal:
            await client.messages.batches.create(
                requests=[{"custom_id": "1", "params": {"model": "m", "max_tokens": 9, "messages": HELLO}}]
            )
    assert refusal.value.body["type"] == "error"  # type: ignore[index]


async def test_no_route_of_this_server_is_said_to_be_missing(world: Installation) -> None:
    paths = (await world.client.get("/openapi.json")).json()["paths"]
    missing_paths = [path for missing in VENDOR_ROUTES for path in missing.paths]
    patterns = [re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path) + "(?:/.*)?") for path in missing_paths]
    assert [path for path in paths for pattern in patterns if pattern.fullmatch(path)] == []
    for path in missing_paths:
        answer = await world.client.post(path.replace("{app_id}", "app_1").replace("{id}", "1"), content=b"--form")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "RESOURCE_NOT_FOUND"
        assert "Not here" in answer.json()["error"]["message"]
