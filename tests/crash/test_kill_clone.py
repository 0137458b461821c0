"""kill -9 while an app is cloned, at each step: the clone is completed once, or has failed and left nothing."""

import hashlib
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select, update

from baobab import tools
from baobab.tools.core.app_clones import STEPS, ClonedRows, ClonedStore
from baobab.tools.templates.survey import list_rules
from baobab.tools.templates.tables import clone_jobs
from tests.backends import prepare_data
from tests.clock import FixedClock
from tests.conftest import KEY, Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs

SCHEMA = {
    "tables": {
        "seeds": {"columns": {"id": {"type": "integer", "primaryKey": True}, "text": "text"}, "_seed": True},
        "words": {"columns": {"word": "text"}, "_seed": True},
    }
}
ROWS = 700
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
GRAPH = {"spec_version": 1, "entry": "done", "nodes": {"done": {"type": "end"}}, "edges": []}
RULES = list_rules(tools.toolsets())
STEPS_THAT_COPY = {rule.step for rule in RULES if isinstance(rule, ClonedRows)} | {
    step for rule in RULES if isinstance(rule, ClonedStore) for step in rule.copies
}
PLACES = [*(step for step in STEPS if step in STEPS_THAT_COPY), "within", "after"]


def kill_clone(data: Path, template: str, place: str) -> None:
    variables = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, **prepare_data(data)}
    arguments = {
        "data": str(data),
        "variables": variables,
        "path": f"/v1/templates/{template}/clone",
        "headers": {"authorization": f"Bearer {KEY}"},
        "place": place,
    }
    process = subprocess.run(
        [sys.executable, "-m", "tests.crash.killed_clone", json.dumps(arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


async def ask(baobab: Baobab, method: str, path: str, body: Any = None) -> Any:
    answer = await baobab.client.request(method, path, json=body, headers=baobab.owner)
    assert answer.is_success, answer.text
    return answer.json()


async def create_template(baobab: Baobab) -> str:
    app = await baobab.create_app(name="desk")
    await ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": SCHEMA})
    await ask(baobab, "POST", f"/v1/{app}/seeds", [{"id": number, "text": f"seed {number}"} for number in range(ROWS)])
    await ask(baobab, "POST", f"/v1/{app}/words", [{"word": "a"}, {"word": "a"}])
    await ask(baobab, "POST", f"/v1/{app}/agents", {"name": "helper", "graph_spec": GRAPH})
    await ask(baobab, "POST", f"/v1/{app}/rag/collections", {"name": "facts"})
    document = {"text": "Baobabs store water.", "metadata": {"_seed": True}}
    await ask(baobab, "POST", f"/v1/{app}/rag/collections/facts/ingest", document)
    await run_due_jobs(baobab.application)
    file = {"path": "README.md", "sha256": hashlib.sha256(b"# Hi").hexdigest(), "size": 4}
    preparation = await ask(baobab, "POST", f"/v1/{app}/repo/snapshots/prepare", {"files": [file]})
    for missing in preparation["missing_blobs"]:
        assert (await baobab.client.put(missing["uploadUrl"], content=b"# Hi")).is_success
    await ask(baobab, "POST", f"/v1/{app}/repo/snapshots/commit", {"manifest": {"files": [file]}})
    await ask(baobab, "PATCH", f"/v1/{app}/config/visibility", {"visibility": "public"})
    return app


async def finish(baobab: Baobab, clock: FixedClock) -> Any:
    """The newest clone job, once it has ended."""
    async with baobab.application.services.database.reading() as connection:
        query = select(clone_jobs.c.id).order_by(clone_jobs.c.created_at.desc()).limit(1)
        job_id = await connection.scalar(query)
    for _ in range(40):
        await run_due_jobs(baobab.application)
        job = await ask(baobab, "GET", f"/v1/clone-jobs/{job_id}")
        if job["completed_at"] is not None:
            return job
        clock.advance(60)
    raise AssertionError(job)


async def test_a_clone_that_was_killed_is_completed_once_wherever_that_was(tmp_path: Path) -> None:
    clock = FixedClock()
    async with open_installation(tmp_path) as baobab:
        template = await create_template(baobab)
    apps = {template}
    for place in PLACES:
        kill_clone(tmp_path, template, place)
        async with open_installation(tmp_path, clock=clock) as baobab:
            job = await finish(baobab, clock)
            assert job["status"] == "completed", (place, job)
            copy = job["dest_app_id"]
            app_ids = {each["id"] for each in (await ask(baobab, "GET", "/apps"))["apps"]}
            assert app_ids - apps == {copy}, place
            apps = app_ids
            await require_whole(baobab, template, copy)
            async with baobab.application.services.database.writing() as connection:
                # Five are made in an hour, and each of these is one.
                await connection.execute(update(clone_jobs).values(created_at=LONG_AGO))
            assert (await ask(baobab, "GET", f"/v1/{template}/config"))["fork_count"] == len(apps) - 1


async def require_whole(baobab: Baobab, template: str, copy: str) -> None:
    assert await ask(baobab, "GET", f"/v1/{copy}/seeds?select=count()") == [{"count": ROWS}]
    assert await ask(baobab, "GET", f"/v1/{copy}/words") == [{"word": "a"}, {"word": "a"}]
    assert [each["name"] for each in (await ask(baobab, "GET", f"/v1/{copy}/agents"))["agents"]] == ["helper"]
    documents = await ask(baobab, "GET", f"/v1/{copy}/rag/collections/facts/documents")
    assert [each["status"] for each in (documents if isinstance(documents, list) else documents["documents"])] == [
        "ready"
    ]
    latest = [await ask(baobab, "GET", f"/v1/{app}/repo/snapshots/latest") for app in (template, copy)]
    assert latest[0] == latest[1]


async def test_a_clone_that_was_killed_as_it_failed_has_failed_and_left_nothing(tmp_path: Path) -> None:
    clock = FixedClock()
    async with open_installation(tmp_path) as baobab:
        template = await create_template(baobab)
        # Its rows cannot be copied: they refer to rows that are not.
        columns = {"id": {"type": "integer", "primaryKey": True}}
        child = {"columns": {**columns, "other_id": {"type": "integer", "references": "others.id"}}}
        others = {"columns": columns}
        tables = {"others": others, "child": {**child, "_seed": True}}
        await ask(baobab, "POST", f"/v1/{template}/schema/apply", {"schema": {"tables": tables}, "mode": "merge"})
        await ask(baobab, "POST", f"/v1/{template}/others", {"id": 1})
        await ask(baobab, "POST", f"/v1/{template}/child", {"id": 1, "other_id": 1})
    kill_clone(tmp_path, template, "undone")
    async with open_installation(tmp_path, clock=clock) as baobab:
        job = await finish(baobab, clock)
        assert (job["status"], job["dest_app_id"]) == ("failed", None)
        assert "`others`" in job["error_message"]
        services = baobab.application.services
        async with services.database.reading() as connection:
            left = await connection.scalar(select(clone_jobs.c.dest_app_id))
        stores = services.regions["local"]
        assert not await stores.data.exists(left)
        assert list(await stores.objects.list(f"{left}/", "", 10)) == []
