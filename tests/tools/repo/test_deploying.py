"""A push deploys the functions of the folder `functions`, where the app is set to it, as whoever commits."""

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from baobab.storage.sql.tables import metadata
from baobab.tools.accounts.first_account import first_account
from baobab.tools.core.context import RequestContext
from baobab.tools.core.guard.steps import Step
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs
from tests.people import create_person

HELLO = "export default (req, ctx) => Response.json({hello: 1})\n"
OPEN_TO_ALL = json.dumps({"triggers": [{"type": "http", "config": {"auth": "none"}}]})


@dataclass
class Pushes(Baobab):
    """An app whose repository is pushed to."""

    app: str = ""

    async def request(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        headers = options.pop("headers", self.owner)
        answer = await self.client.request(method, f"/v1/{self.app}{path}", headers=headers, **options)
        assert answer.status_code == expected, answer.text
        return answer.json() if answer.content else None

    async def switch(self, *, on: bool = True) -> None:
        await self.request("PATCH", "/repo/settings", json={"deploys_functions": on})

    async def commit(self, contents: dict[str, str], **options: Any) -> str:
        """Pushes files, and returns the snapshot's id. What it asks for is not done yet."""
        raw_contents = {path: text.encode() for path, text in contents.items()}
        by_digest = {hashlib.sha256(raw).hexdigest(): raw for raw in raw_contents.values()}
        files = [
            {"path": path, "sha256": hashlib.sha256(raw).hexdigest(), "size": len(raw)}
            for path, raw in raw_contents.items()
        ]
        preparation = await self.request("POST", "/repo/snapshots/prepare", json={"files": files})
        for missing in preparation["missing_blobs"]:
            await self.client.put(missing["uploadUrl"], content=by_digest[missing["sha256"]])
        manifest = {"files": files, "message": "Deploy it"}
        answer = await self.request("POST", "/repo/snapshots/commit", json={"manifest": manifest}, **options)
        return str(answer["snapshot_id"])

    async def push(self, contents: dict[str, str], **options: Any) -> Any:
        """Pushes files, and returns what became of it."""
        await self.commit(contents, **options)
        await run_due_jobs(self.application)
        return (await self.request("GET", "/repo/settings"))["last_deployment"]

    async def list_versions(self) -> dict[str, int]:
        rows = (await self.request("GET", "/functions"))["functions"]
        return {row["name"]: row["version"] for row in rows}


@pytest.fixture
async def pushes(tmp_path: Path) -> AsyncIterator[Pushes]:
    async with open_installation(tmp_path) as installation:
        app = await installation.create_app()
        yield Pushes(installation.application, installation.client, app=app)


async def test_a_push_deploys_nothing_until_it_is_asked_to(pushes: Pushes) -> None:
    assert await pushes.push({"functions/hello.ts": HELLO}) is None
    assert await pushes.list_versions() == {}
    await pushes.switch()
    await pushes.push({"functions/hello.ts": HELLO})
    assert await pushes.list_versions() == {"hello": 1}
    await pushes.switch(on=False)
    await pushes.push({"functions/hello.ts": HELLO + "// more\n"})
    assert await pushes.list_versions() == {"hello": 1}


async def test_functions_whose_files_have_changed_get_a_version_and_no_others(pushes: Pushes) -> None:
    await pushes.switch()
    contents = {
        "functions/hello.ts": HELLO,
        "functions/hello.json": OPEN_TO_ALL,
        "functions/other.py": "def handler(req, ctx):\n    return {'from': 'python'}\n",
        "functions/_shared.ts": "nothing to deploy",
        "functions/deep/inner.ts": "nothing to deploy",
        "README.md": "# Shop",
    }
    outcome = await pushes.push(contents)
    assert [(each["name"], each["version"], each["error"]) for each in outcome["functions"]] == [
        ("hello", 1, None),
        ("other", 1, None),
    ]
    assert (await pushes.client.get(f"/v1/{pushes.app}/fn/hello")).json() == {"hello": 1}
    (version,) = (await pushes.request("GET", "/functions/hello/versions"))["versions"]
    assert version["message"] == "Deploy it"
    outcome = await pushes.push({**contents, "functions/hello.ts": HELLO.replace("1", "2"), "README.md": "# More"})
    assert [(each["name"], each["version"]) for each in outcome["functions"]] == [("hello", 2), ("other", None)]
    # What is gone from the folder is not deleted: that is for a person.
    await pushes.push({"README.md": "# Nothing else"})
    assert await pushes.list_versions() == {"hello": 2, "other": 1}


async def test_a_file_that_is_refused_keeps_no_other_from_being_deployed(pushes: Pushes) -> None:
    await pushes.switch()
    contents = {
        "functions/bad.ts": "export default ( => 1",
        "functions/good.ts": HELLO,
        "functions/odd.ts": HELLO,
        "functions/odd.json": '{"envVars": {"A": "1"}}',
    }
    outcome = await pushes.push(contents)
    errors = {each["name"]: each["error"] for each in outcome["functions"]}
    assert "line 1, column" in errors["bad"]
    assert "must not have `envVars`" in errors["odd"]
    assert errors["good"] is None
    assert await pushes.list_versions() == {"good": 1}
    # What failed is tried again at the next push, though it is the same.
    outcome = await pushes.push({**contents, "functions/odd.json": "{}"})
    assert [each["version"] for each in outcome["functions"]] == [None, None, 1]


async def test_pushes_deploy_with_the_right_of_whoever_commits(pushes: Pushes) -> None:
    await pushes.switch()
    member = await create_person(pushes, "member", role="member")
    outcome = await pushes.push({"functions/hello.ts": HELLO}, headers=member.headers)
    assert "needs an admin" in outcome["error"]
    body = {"name": "limited", "toolsets": ["repo", "functions"]}
    key = (await pushes.client.post("/api-keys", json=body, headers=pushes.owner)).json()["key"]
    outcome = await pushes.push({"functions/hello.ts": HELLO}, headers={"authorization": f"Bearer {key}"})
    assert "a key without limits" in outcome["error"]
    assert await pushes.list_versions() == {}
    await pushes.request("PATCH", "/repo/settings", 403, json={"deploys_functions": True}, headers=member.headers)
    refusal = {"authorization": f"Bearer {key}"}
    await pushes.request("PATCH", "/repo/settings", 403, json={"deploys_functions": True}, headers=refusal)


async def test_what_an_agent_commits_deploys_nothing(pushes: Pushes) -> None:
    await pushes.switch()
    snapshot_id = await pushes.commit({"functions/hello.ts": HELLO})
    await run_due_jobs(pushes.application)
    assert await pushes.list_versions() == {"hello": 1}
    await pushes.commit({"functions/hello.ts": HELLO + "// changed\n"})
    await run_due_jobs(pushes.application)
    manifest = (await pushes.request("GET", f"/repo/snapshots/{snapshot_id}"))["manifest"]
    owner = await first_account(pushes.application.services)
    step = Step("run", "call", owner.organisation_id, owner.account_id, timedelta(minutes=1))
    context = RequestContext("agent", "request", step=step)
    arguments = {"app_id": pushes.app, "manifest": manifest}
    await pushes.application.registry.call("repo_commit", arguments, owner, context)
    await run_due_jobs(pushes.application)
    outcome = (await pushes.request("GET", "/repo/settings"))["last_deployment"]
    assert (outcome["snapshot_id"], outcome["functions"]) == (snapshot_id, [])
    assert "An agent committed it" in outcome["error"]
    assert await pushes.list_versions() == {"hello": 2}


async def test_of_two_pushes_the_later_one_stays(pushes: Pushes) -> None:
    await pushes.switch()
    for number in (2, 3, 4):
        snapshot_id = await pushes.commit({"functions/hello.ts": HELLO.replace("1", str(number))})
    await run_due_jobs(pushes.application)
    settings = await pushes.request("GET", "/repo/settings")
    assert (settings["deploying"], settings["last_deployment"]["snapshot_id"]) == (None, snapshot_id)
    answer = await pushes.request("POST", "/functions/hello/invoke", json={})
    assert answer == {"hello": 4}


async def test_a_job_that_is_made_again_deploys_nothing_twice(pushes: Pushes) -> None:
    await pushes.switch()
    await pushes.commit({"functions/first.ts": HELLO, "functions/second.ts": HELLO})
    services = pushes.application.services
    jobs_table, settings_table = metadata.tables["jobs"], metadata.tables["repo_settings"]
    async with services.database.reading() as connection:
        arguments = (settings_table.c.app_id == pushes.app,)
        job_id = (await connection.execute(select(settings_table.c.job_id).where(*arguments))).scalar_one()
    await run_due_jobs(pushes.application)
    assert await pushes.list_versions() == {"first": 1, "second": 1}
    # As a process leaves it that was killed before the job's end.
    async with services.database.writing() as connection:
        unfinished_job = {"finished_at": None, "held_by": None, "due_at": services.clock.now()}
        await connection.execute(update(jobs_table).where(jobs_table.c.id == job_id).values(**unfinished_job))
        await connection.execute(update(settings_table).values(job_id=job_id, job_at=services.clock.now()))
    await run_due_jobs(pushes.application)
    assert await pushes.list_versions() == {"first": 1, "second": 1}
    assert (await pushes.request("GET", "/repo/settings"))["deploying"] is None
