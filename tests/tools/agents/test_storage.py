"""Graphs read and write files of their app by the names that graphs from elsewhere have for it."""

import json
from typing import Any

from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_models_and_tools import tool_refs

_NAMES = ("read_storage", "write_storage")


def _graph(prompt: str) -> dict[str, Any]:
    think = {"type": "llm", "input_template": prompt, "output_key": "answer", "tools": tool_refs(*_NAMES)}
    end = {"type": "end", "output_template": "{{ state.answer }}"}
    return build_graph({"think": think, "done": end}, ("think", "done"), tools={"builtin": list(_NAMES)})


async def test_a_model_reads_a_file_and_its_write_waits_for_a_person(agency: Agency) -> None:
    arguments = {"app_id": agency.app_id, "key": "notes/a.md"}
    await agency.harness.call("files_write_named", agency.owner, **arguments, content_base64="b25l")
    read = json.dumps({"key": "notes/a.md"})
    write = json.dumps({"key": "notes/a.md", "content_base64": "dHdv"})
    await agency.create_agent("a", _graph(f"/call read_storage {read}\n/then write_storage {write}"))
    run = await agency.run_agent("a")
    assert (run["status"], run["tainted"]) == ("paused", True), run
    assert (await agency.harness.call("files_read_named", agency.owner, **arguments))["content_base64"] == "b25l"
    run = await agency.decide("a", run["id"])
    assert run["status"] == "completed", run
    assert (await agency.harness.call("files_read_named", agency.owner, **arguments))["content_base64"] == "dHdv"
