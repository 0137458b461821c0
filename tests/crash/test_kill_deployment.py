"""kill -9 while a site is deployed, at each place: visitors see the old site or the new one, and then the new one."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.backends import prepare_data
from tests.clock import FixedClock
from tests.conftest import KEY, Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs
from tests.tools.sites.conftest import build_zip, make_app

PLACES = ("stored", "before", "within", "after")


def kill_deployment(data: Path, path: str, place: str) -> None:
    variables = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, **prepare_data(data)}
    arguments = {
        "data": str(data),
        "variables": variables,
        "path": path,
        "headers": {"authorization": f"Bearer {KEY}"},
        "place": place,
    }
    process = subprocess.run(
        [sys.executable, "-m", "tests.crash.killed_deployment", json.dumps(arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


async def upload(baobab: Baobab, app: str, word: str) -> str:
    """Uploads a site of a page and a script that say a word, and returns the path of its deployment."""
    base = f"/v1/{app}/frontend/deployments"
    creation = (await baobab.client.post(base, json={"framework": "static"}, headers=baobab.owner)).json()
    content = build_zip({"index.html": f"<h1>{word}</h1>", "app.js": f"say('{word}')", "same.css": "a { color: red }"})
    headers = {"content-type": "application/zip"}
    answer = await baobab.client.put(creation["uploadUrl"], content=content, headers=headers)
    assert answer.is_success, answer.text
    return f"{base}/{creation['id']}"


async def read(baobab: Baobab, host: str) -> tuple[str, str]:
    async def get(path: str) -> httpx.Response:
        return await baobab.client.get(path, headers={"host": host})

    return (await get("/")).text, (await get("/app.js")).text


async def test_a_deployment_that_was_killed_is_published_whole_wherever_that_was(tmp_path: Path) -> None:
    clock = FixedClock()
    async with open_installation(tmp_path) as baobab:
        app, host = await make_app(baobab)
        path = await upload(baobab, app, "first")
        assert (await baobab.client.post(f"{path}/start", headers=baobab.owner)).status_code == 202
        await run_due_jobs(baobab.application)
        seen_before = await read(baobab, host)
        assert seen_before == ("<h1>first</h1>", "say('first')")
    for place in PLACES:
        async with open_installation(tmp_path) as baobab:
            path = await upload(baobab, app, place)
        kill_deployment(tmp_path, f"{path}/start", place)
        seen_after = (f"<h1>{place}</h1>", f"say('{place}')")
        async with open_installation(tmp_path, clock=clock) as baobab:
            assert await read(baobab, host) == (seen_after if place == "after" else seen_before), place
            for _ in range(40):
                await run_due_jobs(baobab.application)
                deployment = (await baobab.client.get(path, headers=baobab.owner)).json()
                if deployment["status"] != "BUILDING":
                    break
                clock.advance(60)
            assert (deployment["status"], deployment["live"]) == ("READY", True), (place, deployment)
            assert await read(baobab, host) == seen_after, place
            seen_before = seen_after
            # The zip is deleted, and of each content there is one object.
            clock.advance(3600)
            await run_due_jobs(baobab.application)
            objects = baobab.application.services.regions["local"].objects
            keys = list(await objects.list(f"{app}/", "", 1000))
            assert len(keys) == len({key.rpartition("/")[2] for key in keys}), keys
            assert not any("upload" in key for key in keys), keys
