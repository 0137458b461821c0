"""What /llms.txt tells a model to send works as it stands there."""

import json
import re
import time
from pathlib import Path
from typing import Any

import httpx

from tests.cli.server_process import TIMEOUT_SECONDS, run_server

_EXAMPLE = re.compile(r"^```\n(GET|POST|PUT) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RESTING = ("completed", "paused", "failed")


def test_every_example_of_llms_txt_works(tmp_path: Path) -> None:
    with run_server(tmp_path / "data") as server, httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        headers = {"authorization": f"Bearer {server.key}"}
        examples = _EXAMPLE.findall(client.get(f"{server.address}/llms.txt").text)
        assert len(examples) > 10
        values: dict[str, str] = {}
        runs: list[Any] = []
        for method, example_address, example_body in examples:
            address, body = _fill_placeholders(example_address, values), _fill_placeholders(example_body, values)
            payload = json.loads(body) if body else None
            answer = client.request(method, address, json=payload, headers=headers)
            assert answer.is_success, (method, address, answer.text)
            answer_json = answer.json() if answer.content else {}
            if "posts?" in address:
                assert [row["title"] for row in answer_json] == ["Hello"]
                continue
            if "app_id" in answer_json and address.endswith("/init"):
                values["APP_ID"] = answer_json["app_id"]
            if "run_id" in answer_json and address.endswith("/runs"):
                values["RUN_ID"] = answer_json["run_id"]
                runs.append(_wait_for_run(client, f"{address}/{answer_json['run_id']}", headers))
            for event in answer_json.get("events", ()):
                values["APPROVAL_TOKEN"] = event["payload"].get("approval_token", values.get("APPROVAL_TOKEN", ""))
            if address.endswith("/resume"):
                runs.append(_wait_for_run(client, address.removesuffix("/resume"), headers))
        assert [run["status"] for run in runs] == ["completed", "paused", "completed"]
        assert "baobab" in json.dumps(runs[0]["output"])
        assert runs[2]["output"] == "kept"


def _fill_placeholders(text: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def _wait_for_run(client: httpx.Client, address: str, headers: dict[str, str]) -> Any:
    """A run, when it has ended or waits for a person."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        run = client.get(address, headers=headers).json()["run"]
        if run["status"] in _RESTING or time.monotonic() > end:
            return run
        time.sleep(0.05)
