"""kill -9 between the bytes of a file and its row: nothing is counted, and what is left is swept."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import prepare_data
from tests.conftest import KEY, Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs, run_job

RESUMED = {"tus-resumable": "1.0.0", "upload-offset": "0", "content-type": "application/offset+octet-stream"}


def kill_upload(data: Path, path: str, headers: dict[str, str]) -> None:
    """Sends the bytes of a file to a process that is killed when they are stored."""
    variables = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, **prepare_data(data)}
    arguments = {"data": str(data), "variables": variables, "path": path, "headers": headers, "body": "hello"}
    process = subprocess.run(
        [sys.executable, "-m", "tests.crash.killed_upload", json.dumps(arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


async def list_keys(baobab: Baobab, app: str) -> list[str]:
    return list(await baobab.application.services.regions["local"].objects.list(f"{app}/", "", 100))


async def read_usage(baobab: Baobab, app: str) -> tuple[int, int]:
    usage = (await baobab.client.get(f"/storage/{app}/usage", headers=baobab.owner)).json()
    return usage["storage_used_bytes"], usage["files_count"]


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_an_upload_that_was_killed_before_its_row_is_sent_again_and_leaves_nothing(
    tmp_path: Path, is_resumed: bool
) -> None:
    async with open_installation(tmp_path) as baobab:
        app = await baobab.create_app()
        if is_resumed:
            begin = {**baobab.owner, "tus-resumable": "1.0.0", "upload-length": "5"}
            response = await baobab.client.post(f"/storage/{app}/uploads", headers=begin)
            path, headers = f"/storage/{app}/{response.headers['location']}", {**baobab.owner, **RESUMED}
        else:
            body = {"filename": "a.txt", "contentType": "text/plain", "sizeBytes": 5}
            announced_response = await baobab.client.post(f"/storage/{app}/upload", json=body, headers=baobab.owner)
            path, headers = announced_response.json()["uploadUrl"], {"content-type": "text/plain"}
    for _ in range(2):
        kill_upload(tmp_path, path, headers)
    async with open_installation(tmp_path) as baobab:
        assert len(await list_keys(baobab, app)) == 2
        assert await read_usage(baobab, app) == (0, 0)
        # What is arriving is not swept.
        await run_job(baobab.application, "files_leftovers")
        assert len(await list_keys(baobab, app)) == 2
        method = "PATCH" if is_resumed else "PUT"
        stored_response = await baobab.client.request(method, path, content=b"hello", headers=headers)
        assert stored_response.is_success, stored_response.text
        assert await read_usage(baobab, app) == (5, 1)
        await run_due_jobs(baobab.application)
        await run_job(baobab.application, "files_leftovers")
        assert len(await list_keys(baobab, app)) == 1
        (row,) = (await baobab.client.get(f"/storage/{app}/objects", headers=baobab.owner)).json()
        address = await baobab.client.get(f"/storage/{app}/download/{row['id']}", headers=baobab.owner)
        assert (await baobab.client.get(address.json()["downloadUrl"])).content == b"hello"
