"""kill -9 while a file is imported: when it is sent again with its key, every line is written once."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import prepare_data
from tests.conftest import KEY
from tests.installation import open_installation

LINES = 1200
SCHEMA = {
    "tables": {
        "items": {
            "columns": {
                "id": {"type": "serial", "primaryKey": True},
                "note": "text",
                "size": {"type": "integer", "generated": "length(note)"},
            },
            "checks": {"has_note": "note <> ''"},
        }
    }
}


def kill_import(data: Path, path: str, headers: dict[str, str], body: str, place: str) -> None:
    variables = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, **prepare_data(data)}
    arguments = {
        "data": str(data),
        "variables": variables,
        "path": path,
        "headers": headers,
        "body": body,
        "place": place,
    }
    process = subprocess.run(
        [sys.executable, "-m", "tests.crash.killed_import", json.dumps(arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.parametrize("place", ["before", "within"])
async def test_an_import_that_was_killed_goes_on_where_it_was_and_writes_no_line_twice(
    tmp_path: Path, place: str
) -> None:
    body = "note\n" + "".join(f"note {number}\n" for number in range(LINES))
    async with open_installation(tmp_path) as baobab:
        app = await baobab.create_app()
        response = await baobab.client.post(f"/v1/{app}/schema/apply", json={"schema": SCHEMA}, headers=baobab.owner)
        assert response.is_success, response.text
    headers = {**baobab.owner, "idempotency-key": "file", "content-type": "text/csv"}
    path = f"/v1/{app}/data-import/items"
    kill_import(tmp_path, path, headers, body, place)
    async with open_installation(tmp_path) as baobab:
        counted_response = await baobab.client.get(f"/v1/{app}/items?select=count()", headers=baobab.owner)
        assert counted_response.json() == [{"count": 500}]
        other = await baobab.client.post(path, content=body.replace("note 3\n", "other\n"), headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
        for _ in range(2):
            answer = await baobab.client.post(path, content=body, headers=headers)
            assert (answer.status_code, answer.json()["written"]) == (200, LINES), answer.text
        query = "select=note,size&order=id&limit=1000"
        pages = [
            (await baobab.client.get(f"/v1/{app}/items?{query}&offset={offset}", headers=baobab.owner)).json()
            for offset in (0, 1000)
        ]
        notes = [f"note {number}" for number in range(LINES)]
        assert [*pages[0], *pages[1]] == [{"note": note, "size": len(note)} for note in notes]
        undone_response = await baobab.client.post(
            f"/v1/{app}/data-changes/undo", json={"run_id": answer.json()["import_id"]}, headers=baobab.owner
        )
        assert (undone_response.status_code, undone_response.json()["undone"]) == (200, LINES), undone_response.text
