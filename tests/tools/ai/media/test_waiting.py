"""A call that makes an image or a video waits for it, as long as it may and its client stays."""

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.tools.ai.media.tables import generation_jobs
from tests.mcp_server.mcp_requests import Stream, build_scope, call_tool, read_refusal
from tests.tools.ai.media.conftest import BUILT_IN, VIDEO, Kind, MediaBaobab

LESS_THAN_THE_WAIT = 50.0
"""Seconds after which a call that waits for 55 would still wait."""


async def run_jobs_until_done(baobab: MediaBaobab, waiting: "asyncio.Task[Any]") -> Any:
    """The result of a call, while what it waits for is done."""
    while not waiting.done():
        await baobab.run_due_jobs(1)
        await asyncio.sleep(0)
    return await waiting


async def count_jobs(baobab: MediaBaobab) -> int:
    async with baobab.application.services.database.reading() as connection:
        return int((await connection.execute(select(func.count()).select_from(generation_jobs))).scalar_one())


@pytest.mark.parametrize("kind", ["image", "video"])
async def test_a_generation_that_is_waited_for_answers_with_its_file(baobab: MediaBaobab, kind: Kind) -> None:
    arguments = {"app_id": await baobab.create_app(), "model": BUILT_IN[kind], "prompt": "A tree", "wait_seconds": 55}
    waiting = asyncio.create_task(call_tool(baobab, f"{kind}s_generate", arguments))
    job = (await run_jobs_until_done(baobab, waiting))["structuredContent"]
    assert job["status"] == "completed"
    assert len(job["content_urls"]) == 1


async def test_a_longer_wait_is_refused_before_anything_is_made(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    arguments = {"app_id": app, "model": VIDEO, "prompt": "A tree", "duration": 4, "wait_seconds": 56}
    refusal = read_refusal(await call_tool(baobab, "videos_generate", arguments))
    assert refusal["code"] == "VALIDATION_INVALID_INPUT"
    assert "wait_seconds" in refusal["message"]
    answer = await baobab.submit(app, "video", model=VIDEO, duration=4, wait_seconds=56)
    assert answer.status_code == 400
    assert await count_jobs(baobab) == 0


async def test_a_client_that_leaves_ends_the_wait_and_not_the_work(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    app = await baobab.create_app()
    path = f"/v1/{app}/videos/completions"
    content = {"model": VIDEO, "prompt": "A tree", "duration": 4, "wait_seconds": 55}
    body = json.dumps(content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **baobab.owner}
    stream = Stream()
    request_parts = stream.receive(body)
    serve = baobab.client._transport.app  # type: ignore[attr-defined]
    scope = build_scope(baobab, "POST", path, headers)
    serving = asyncio.create_task(serve(scope, request_parts.__anext__, stream.send))
    while not await count_jobs(baobab):
        await asyncio.sleep(0)
    stream.disconnect()
    async with asyncio.timeout(LESS_THAN_THE_WAIT):
        await serving
    baobab.fake.videos = "completed"
    async with baobab.application.services.database.reading() as connection:
        job_id = (await connection.execute(select(generation_jobs.c.id))).scalar_one()
    assert (await baobab.poll_at_end(f"{path}/{job_id}"))["status"] == "completed"
