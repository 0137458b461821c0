"""Two machines: whoever follows a run at the one that does not execute it gets the model's answer as it arrives."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.runtime.gateway.upstream import start_upstream
from tests.tools.agents.test_live_text import DELTA, HELLO, join_deltas, parse_frames

GRAPH = {
    "spec_version": 1,
    "entry": "think",
    "nodes": {
        "think": {"type": "llm", "model": "openai/gpt-4o-mini", "input_template": "Hello!", "output_key": "answer"},
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    "edges": [{"from": "think", "to": "done"}],
}


async def follow(session: aiohttp.ClientSession, server: ServerProcess, path: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(TIMEOUT_SECONDS), session.get(f"{server.address}{path}/events") as answer:
        assert answer.status == 200, await answer.text()
        return parse_frames(await answer.text())


async def test_the_answer_of_a_model_is_followed_at_either_machine(tmp_path: Path) -> None:
    async with start_upstream(behaviour="slow-tokens:0.4") as fake:
        provider = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": f"{fake.url}/v1", "BAOBAB_AI_PROBE": "false"}
        installation = Installation.on_backend(tmp_path, settings=provider)
        with installation.start_machine(0) as first, installation.start_machine(1) as second:
            async with open_session() as session:
                app_id = await create_app(session, first)
                agents = f"/v1/{app_id}/agents"
                body = {"name": "poet", "graph_spec": GRAPH}
                async with session.post(f"{first.address}{agents}", json=body) as response:
                    assert response.status == 201, await response.text()
                async with session.post(f"{first.address}{agents}/poet/runs", json={"input": {}}) as started_response:
                    run = f"{agents}/poet/runs/{(await started_response.json())['run_id']}"
                for frames in await asyncio.gather(follow(session, first, run), follow(session, second, run)):
                    kinds = [frame["type"] for frame in frames]
                    assert (join_deltas(frames), frames[-1]["payload"]) == (HELLO, {"output": HELLO})
                    assert kinds.count(DELTA) > 1
                    last = len(kinds) - 1 - kinds[::-1].index(DELTA)
                    assert kinds.index("node_start") < kinds.index(DELTA) <= last < kinds.index("llm_token_usage")
