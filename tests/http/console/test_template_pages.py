"""The pages of templates: the gallery, a template, cloning it, and how far the clone is."""

import hashlib
import re

from tests.conftest import Baobab
from tests.http.console.test_console import sign_in
from tests.http.console.test_runs import Runner
from tests.jobs import run_due_jobs


async def offer(visitor: Runner) -> None:
    """Offers the visitor's app, with a trigger that a clone has switched off."""
    client, owner, path = visitor.baobab.client, visitor.baobab.owner, f"/v1/{visitor.app_id}"
    file = {"path": "README.md", "sha256": hashlib.sha256(b"# Hi").hexdigest(), "size": 4}
    answer = await client.post(f"{path}/repo/snapshots/prepare", json={"files": [file]}, headers=owner)
    for missing in answer.json()["missing_blobs"]:
        await client.put(missing["uploadUrl"], content=b"# Hi")
    for method, place, body in (
        ("POST", "repo/snapshots/commit", {"manifest": {"files": [file]}}),
        ("PUT", "triggers/hourly", {"event": "schedule", "schedule": "0 * * * *", "webhook": "https://h.example/x"}),
        ("PATCH", "config/visibility", {"visibility": "public", "listed": True}),
    ):
        answer = await client.request(method, f"{path}/{place}", json=body, headers=owner)
        assert answer.is_success, answer.text


async def test_a_template_is_found_looked_at_and_cloned(baobab: Baobab) -> None:
    visitor = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    assert "No template is offered" in (await visitor.open("/console/templates?q=nothing-like-it")).text
    await offer(visitor)
    gallery = await visitor.open("/console/templates")
    assert f"/console/templates/{visitor.app_id}" in gallery.text
    page = await visitor.open(f"/console/templates/{visitor.app_id}")
    assert "https://h.example/x" in page.text
    answer = await visitor.send(f"/console/templates/{visitor.app_id}/clone", page, name="my-copy")
    assert answer.status_code == 303, answer.text
    path = answer.headers["location"]
    await run_due_jobs(baobab.application)
    job = await visitor.open(path)
    match = re.search("/console/apps/app_[a-z0-9]+", job.text)
    assert match
    assert "Still off" in job.text
    assert "0 * * * *" in job.text
    # The app's own page leads to the same later on; that of an app that is no clone does not.
    overview = await visitor.open(match[0])
    assert f"{match[0]}/clone-review" in overview.text
    review = await visitor.open(f"{match[0]}/clone-review")
    assert "0 * * * *" in review.text
    assert "triggers_resume" in review.text
    assert "clone-review" not in (await visitor.open(f"/console/apps/{visitor.app_id}")).text
