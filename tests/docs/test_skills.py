"""The skills for coding agents have the form that those install, and every call in them works."""

import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, run_server

FOLDER = Path(__file__).parents[2] / "skills"
SKILLS = sorted(path.parent.name for path in FOLDER.glob("*/SKILL.md"))
MOST_CHARACTERS = 8000
_FRONTMATTER = re.compile(r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{1,1024})\n---\n\n# ")
_CALL = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RESTING = {
    "agents_runs_get": ("paused", "completed", "failed"),
    "rag_documents_get": ("ready", "failed"),
}
"""Calls that are repeated until the status is one of these, as the skill says."""
_PLACES = {
    "APP_ID": ("apps_init", r'"app_id":"(\w+)"'),
    "RUN_ID": ("agents_run", r'"run_id":"([\w-]+)"'),
    "ACTION_ID": ("data_changes", r'"action_id":"?([\w-]+)'),
    "APPROVAL_ID": ("approvals_list", r'"(appr_\w+)"'),
    "DOCUMENT_ID": ("rag_ingest", r'"(?:id|document_id|documentId)":"([\w-]+)"'),
}
"""The placeholders of ids: the tool whose answer has it, and where."""


def read_skill(name: str) -> str:
    return (FOLDER / name / "SKILL.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_has_the_form_that_clients_install(name: str) -> None:
    text = read_skill(name)
    match = _FRONTMATTER.match(text)
    assert match, text[:200]
    assert match[1] == name
    assert "Use when" in match[2] or "Use for" in match[2]
    assert len(text) < MOST_CHARACTERS


def test_every_call_of_every_skill_works(tmp_path: Path) -> None:
    assert len(SKILLS) == 5
    with run_server(tmp_path / "data") as server, httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        for name in SKILLS:
            values: dict[str, str] = {}
            calls = _CALL.findall(read_skill(name))
            assert len(calls) >= 5
            for text in calls:
                call = json.loads(fill_in(text, values))
                answer = make_call(client, f"{server.address}/mcp?toolsets=all", server.key, call)
                for placeholder, (tool, pattern) in _PLACES.items():
                    if tool == call["tool"] and (match := re.search(pattern, answer)):
                        values[placeholder] = match[1]


def fill_in(text: str, values: dict[str, str]) -> str:
    """A call with the ids that earlier calls answered."""
    return re.sub(r"\b[A-Z]+_ID\b", lambda match: values.get(match[0], match[0]), text)


def make_call(client: httpx.Client, address: str, key: str, call: dict[str, Any]) -> str:
    """Makes a call over MCP, again until it rests where that is what it waits for. Returns the text of its result."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": call["tool"], "arguments": call["arguments"]},
    }
    headers = {
        "authorization": f"Bearer {key}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-06-18",
    }
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        body = client.post(address, json=message, headers=headers).text
        data = next((line[6:] for line in body.splitlines() if line.startswith("data: {")), body)
        result = json.loads(data)["result"]
        text: str = result["content"][0]["text"]
        assert not result.get("isError"), (call, text)
        states = _RESTING.get(call["tool"])
        if states is None or any(f'"status":"{state}"' in text for state in states) or time.monotonic() > end:
            return text
        time.sleep(0.05)
