"""What is left to be done for an organisation is listed, tried again and cancelled by its members, and by no others."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.conftest import Baobab
from tests.jobs import jobs
from tests.mcp_server.mcp_requests import call_tool
from tests.people import create_person, get_first_organisation

pytestmark = pytest.mark.own_installation

HOUR = timedelta(hours=1)


async def put_job(baobab: Baobab, job_id: str, kind: str = "agents_webhook", **values: Any) -> None:
    """A row of the first account's organisation, due in an hour: nobody does it during the test."""
    services = baobab.application.services
    me = (await baobab.client.get("/platform/me", headers=baobab.owner)).json()
    now = services.clock.now()
    row = {"id": job_id, "kind": kind, "tenant": me["organizations"][0]["id"], "arguments": {"run_id": "run_none"}}
    row |= {"due_at": now + HOUR, "epoch": 0, "attempts": 0, "created_at": now, "held_by": None}
    row |= {"finished_at": None, "error": None}
    async with services.database.writing() as connection:
        await connection.execute(insert(jobs), row | values)


async def ask(baobab: Baobab, path: str = "", method: str = "GET", **query: Any) -> Any:
    return await baobab.client.request(method, f"/v1/jobs{path}", params=query, headers=baobab.owner)


async def test_jobs_that_wait_are_listed_by_kind_page_by_page_and_ended_ones_are_not(baobab: Baobab) -> None:
    for number in range(3):
        await put_job(baobab, f"w{number}")
    await put_job(baobab, "other", kind="rag_prepare", arguments={"app_id": "app_x1x1x1", "document_id": "d"})
    await put_job(baobab, "done", finished_at=baobab.application.services.clock.now())
    await put_job(baobab, "strange", kind="of_the_next_version", tenant="platform")
    first = (await ask(baobab, limit=2)).json()
    second = (await ask(baobab, limit=2, cursor=first["next_cursor"])).json()
    for arguments in ({"limit": 2}, {"limit": 2, "cursor": first["next_cursor"]}):
        answer = await call_tool(baobab, "jobs_list", arguments)
        assert answer["structuredContent"]["total"] == 4
    ids = [job["id"] for job in first["jobs"] + second["jobs"]]
    assert ids == ["w0", "w1", "w2", "other"]
    assert second["next_cursor"] is None
    other = second["jobs"][-1]
    assert (other["status"], other["app_id"], other["cancelled_with"]) == (
        "waiting",
        "app_x1x1x1",
        "rag_documents_delete",
    )
    assert other["does"] == "Prepares the next version of a document."
    assert [job["id"] for job in (await ask(baobab, kind="rag_prepare")).json()["jobs"]] == ["other"]
    refusal = await ask(baobab, kind="rag_prepare", cursor=first["next_cursor"])
    assert refusal.status_code == 400


async def test_failed_jobs_are_listed_newest_first_and_tried_again(baobab: Baobab) -> None:
    now = baobab.application.services.clock.now()
    for number in range(3):
        arguments = {"finished_at": now - number * HOUR, "error": "ValueError: no", "attempts": 8, "held_by": "x"}
        await put_job(baobab, f"f{number}", kind="nobody_knows", **arguments)
    first = (await ask(baobab, status="failed", limit=2)).json()
    second = (await ask(baobab, status="failed", limit=2, cursor=first["next_cursor"])).json()
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ["f0", "f1", "f2"]
    both = await asyncio.gather(ask(baobab, "/f1/retry", "POST"), ask(baobab, "/f1/retry", "POST"))
    assert [answer.status_code for answer in both] == [200, 200]
    job = (await ask(baobab, "/f1")).json()["job"]
    assert (job["status"], job["attempts"], job["error"]) == ("waiting", 0, "ValueError: no")
    assert job["due_at"] <= baobab.application.services.clock.now().isoformat()
    assert [job["id"] for job in (await ask(baobab, status="failed")).json()["jobs"]] == ["f0", "f2"]


async def test_what_is_running_or_done_is_not_tried_again(baobab: Baobab) -> None:
    await put_job(baobab, "runs", held_by="a runner")
    await put_job(baobab, "done", finished_at=baobab.application.services.clock.now())
    for job_id in ("runs", "done"):
        answer = await ask(baobab, f"/{job_id}/retry", "POST")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "JOB_NOT_RETRIED")


async def test_a_cancelled_job_is_taken_from_the_attempt_that_runs_and_can_be_tried_again(baobab: Baobab) -> None:
    await put_job(baobab, "hook:1", held_by="a runner", epoch=4)
    job = (await ask(baobab, "/hook:1/cancel", "POST")).json()["job"]
    assert (job["status"], job["cancelled_with"]) == ("cancelled", None)
    # What the attempt writes, it writes with its epoch.
    async with baobab.application.services.database.writing() as connection:
        mine = update(jobs).where(jobs.c.id == "hook:1", jobs.c.epoch == 4)
        assert (await connection.execute(mine.values(error=None))).rowcount == 0
    assert (await ask(baobab, "/hook:1/cancel", "POST")).status_code == 409
    assert (await ask(baobab, "/hook:1/retry", "POST")).json()["job"]["status"] == "waiting"


async def test_what_must_be_done_is_not_cancelled_and_what_belongs_to_more_names_its_tool(baobab: Baobab) -> None:
    await put_job(baobab, "erase", kind="files_erase")
    await put_job(baobab, "run:1", kind="agents_advance")
    await put_job(baobab, "strange", kind="of_the_next_version")
    for job_id, remedy in {"erase": "Leave it", "run:1": "runs/{id}/cancel", "strange": "Leave it"}.items():
        answer = await ask(baobab, f"/{job_id}/cancel", "POST")
        assert answer.status_code == 409
        assert remedy in answer.json()["error"]["remediation"]


async def test_members_look_only_and_others_find_nothing(baobab: Baobab) -> None:
    await put_job(baobab, "ours")
    stranger = await create_person(baobab, "stranger")
    headers = stranger.headers
    for method, path in (("GET", ""), ("POST", "/retry"), ("POST", "/cancel")):
        answer = await baobab.client.request(method, f"/v1/jobs/ours{path}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "JOB_NOT_FOUND")
    assert (await baobab.client.get("/v1/jobs", headers=headers)).json()["jobs"] == []


async def test_members_of_several_organisations_name_the_one_whose_jobs_they_mean(baobab: Baobab) -> None:
    await put_job(baobab, "w1")
    home = await get_first_organisation(baobab)
    member = await create_person(baobab, "member", role="member")
    admin = await create_person(baobab, "admin", role="admin")
    stranger = await create_person(baobab, "stranger")
    body = {"organization_id": home}
    for person, read_status, retry_status in ((member, 200, 403), (admin, 200, 200), (stranger, 403, 403)):
        path, by = "/v1/jobs", person.headers
        response = await baobab.client.get(path, params=body, headers=by)
        one = await baobab.client.get(f"{path}/w1", params=body, headers=by)
        retried_response = await baobab.client.post(f"{path}/w1/retry", json=body, headers=by)
        assert (response.status_code, one.status_code, retried_response.status_code) == (
            read_status,
            read_status,
            retry_status,
        )
        assert (await baobab.client.get(path, headers=by)).json()["jobs"] == []
    own = {**body, "organization_id": stranger.organisation_id}
    assert (await baobab.client.get("/v1/jobs", params=own, headers=baobab.owner)).status_code == 403


async def test_every_way_to_cancel_names_a_tool_that_there_is(baobab: Baobab) -> None:
    registry = baobab.application.registry
    cancels = {kind.cancel for kind in registry.jobs.values() if isinstance(kind.cancel, str)}
    assert cancels
    assert cancels <= set(registry.tools)
