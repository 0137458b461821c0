"""Deployments: uploaded, unpacked, live, rolled back, cancelled, removed."""

from collections.abc import AsyncIterator

from sqlalchemy import text

from tests import jobs
from tests.tools.sites.conftest import Site, build_zip

PAGES = {"index.html": "<h1>One</h1>", "about.html": "About", "assets/app.js": "let a = 1"}


async def test_a_zip_is_uploaded_started_and_live_on_the_host_of_the_app(site: Site) -> None:
    creation = await site.request("POST", "/deployments", json={"framework": "react-vite"})
    assert (creation["expiresIn"], creation["maxSizeBytes"]) == (900, 104857600)
    path = f"/deployments/{creation['id']}"
    assert (await site.request("GET", path))["status"] == "WAITING"
    refusal = await site.request("POST", path + "/start", 409)
    assert refusal["error"]["code"] == "STATE_PREREQUISITE_MISSING"
    answer = await site.client.put(creation["uploadUrl"], content=build_zip(PAGES))
    assert answer.json()["status"] == "UPLOADING", answer.text
    started_deployment = await site.request("POST", path + "/start", 202)
    assert (started_deployment["status"], started_deployment["live"], started_deployment["framework"]) == (
        "BUILDING",
        False,
        "react-vite",
    )
    await site.work()
    deployment = await site.request("GET", path)
    assert (deployment["status"], deployment["live"], deployment["warnings"]) == ("READY", True, [])
    assert (deployment["files_count"], deployment["size_bytes"]) == (3, sum(map(len, PAGES.values())))
    assert deployment["url"] == f"http://{site.host}"
    page = await site.get("/")
    assert (page.status_code, page.text, page.headers["content-type"]) == (
        200,
        "<h1>One</h1>",
        "text/html; charset=utf-8",
    )
    assert (await site.get("/assets/app.js")).headers["content-type"] == "text/javascript; charset=utf-8"
    listing = await site.request("GET", "/deployments")
    assert [each["id"] for each in listing["deployments"]] == [creation["id"]]
    assert (listing["kept"], listing["traffic"]["limit_bytes"]) == (10, 100 * 2**30)


async def test_a_deployment_that_is_only_looked_at_leaves_the_live_one_as_it_is(site: Site) -> None:
    before = await site.write(index__html="<h1>One</h1>")
    creation = await site.upload(build_zip({"index.html": "<h1>Two</h1>"}))
    await site.request("POST", f"/deployments/{creation}/start", 202, json={"live": False})
    # What is taken up again still does what its start said.
    await site.request("POST", f"/deployments/{creation}/sync")
    await site.work()
    deployment = await site.request("GET", f"/deployments/{creation}")
    assert (deployment["status"], deployment["live"], deployment["warnings"]) == ("READY", False, [])
    assert (await site.get("/")).text == "<h1>One</h1>"
    assert (await site.request("GET", f"/deployments/{before['id']}"))["live"]
    assert "preview" in (await site.request("GET", f"/deployments/{creation}/preview"))["url"]
    await site.request("POST", f"/deployments/{creation}/activate")
    assert (await site.get("/")).text == "<h1>Two</h1>"


async def test_a_small_site_is_deployed_in_one_call_and_replaces_the_one_before(site: Site) -> None:
    first = await site.write(index__html="<h1>One</h1>", old__html="Old")
    assert (first["status"], first["live"], first["files_count"]) == ("READY", True, 2)
    await site.write(index__html="<h1>Two</h1>")
    assert (await site.get("/")).text == "<h1>Two</h1>"
    assert (await site.get("/old")).status_code == 404
    rolled_back = await site.request("POST", f"/deployments/{first['id']}/activate")
    assert rolled_back["live"]
    assert (await site.get("/")).text == "<h1>One</h1>"
    assert (await site.get("/old")).text == "Old"
    # The next one is newer than both.
    await site.write(index__html="<h1>Three</h1>")
    assert (await site.get("/")).text == "<h1>Three</h1>"


async def test_deployments_beyond_what_the_plan_keeps_are_removed_the_oldest_first_and_named(site: Site) -> None:
    deployments = [await site.write(index__html=f"<h1>{number}</h1>", same__txt="same") for number in range(11)]
    oldest, newest = deployments[0], deployments[-1]
    assert [warning for warning in newest["warnings"] if oldest["id"] in warning and "launch keeps 10" in warning]
    await site.request("GET", f"/deployments/{oldest['id']}", 404)
    assert len((await site.request("GET", "/deployments"))["deployments"]) == 10
    site.clock.advance(61)
    await site.work()
    # Ten pages and one file that all of them have, which the first one had stored.
    assert len(await site.list_keys()) == 11
    assert (await site.get("/same.txt")).text == "same"
    await site.request("POST", f"/deployments/{deployments[1]['id']}/activate")
    newer = await site.write(index__html="<h1>again</h1>")
    assert [warning for warning in newer["warnings"] if deployments[1]["id"] in warning]


async def test_a_deployment_is_cancelled_and_what_is_live_stays_live(site: Site) -> None:
    await site.write(index__html="live")
    deployment_id = await site.upload(build_zip(PAGES))
    await site.request("POST", f"/deployments/{deployment_id}/start", 202)
    cancelled_deployment = await site.request("POST", f"/deployments/{deployment_id}/cancel")
    assert cancelled_deployment["status"] == "CANCELED"
    await site.work()
    assert (await site.request("GET", f"/deployments/{deployment_id}"))["status"] == "CANCELED"
    assert (await site.get("/")).text == "live"
    await site.request("POST", f"/deployments/{deployment_id}/start", 409)
    site.clock.advance(61)
    await site.work()
    assert not [key for key in await site.list_keys() if deployment_id in key]


async def test_the_job_of_a_deployment_may_run_twice_and_sync_takes_it_up_again(site: Site) -> None:
    deployment_id = await site.upload(build_zip(PAGES))
    await site.request("POST", f"/deployments/{deployment_id}/start", 202)
    assert (await site.request("POST", f"/deployments/{deployment_id}/sync"))["status"] == "BUILDING"
    await site.work()
    assert (await site.request("POST", f"/deployments/{deployment_id}/sync"))["status"] == "READY"
    assert (await site.get("/")).text == PAGES["index.html"]
    assert (await site.request("POST", f"/deployments/{deployment_id}/start", 409))["error"]["code"]


async def test_a_deleted_deployment_takes_the_site_down_if_it_was_live(site: Site) -> None:
    first, second = await site.write(index__html="one"), await site.write(index__html="two")
    deletion = await site.request("DELETE", f"/deployments/{first['id']}")
    assert deletion == {"id": first["id"], "deleted": True, "was_live": False}
    assert (await site.get("/")).text == "two"
    assert (await site.request("DELETE", f"/deployments/{second['id']}"))["was_live"]
    refusal = await site.get("/")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (404, "RESOURCE_NOT_FOUND")
    site.clock.advance(61)
    await site.work()
    assert await site.list_keys() == []


async def test_a_zip_that_cannot_be_deployed_says_why_and_leaves_what_is_live(site: Site) -> None:
    await site.write(index__html="live")
    deployment = await site.deploy_zip(b"this is not a zip")
    assert (deployment["status"], deployment["error"]["code"]) == ("ERROR", "VALIDATION_INVALID_INPUT")
    assert "not a zip" in deployment["error"]["message"]
    assert (await site.get("/")).text == "live"


async def test_only_a_few_deployments_may_wait_and_those_of_yesterday_are_ended(site: Site) -> None:
    for _ in range(10):
        await site.request("POST", "/deployments", json={})
    refusal = await site.request("POST", "/deployments", 402, json={})
    assert refusal["error"]["code"] == "QUOTA_DEPLOYMENT_LIMIT"
    site.clock.advance(24 * 3600 + 1)
    await jobs.run_job(site.application, "sites_sweep")
    await site.request("POST", "/deployments", json={})
    statuses = [each["status"] for each in (await site.request("GET", "/deployments"))["deployments"]]
    assert statuses == ["WAITING", *["CANCELED"] * 10]


async def test_the_variables_of_the_next_build_are_set_and_never_shown(site: Site) -> None:
    keys = await site.request("PUT", "/env", json={"API_URL": "https://api.example", "TOKEN": "s3cret"})
    assert keys == {"keys": ["API_URL", "TOKEN"]}
    assert await site.request("PATCH", "/env", json={"TOKEN": None, "MODE": "live"}) == {"keys": ["API_URL", "MODE"]}
    assert await site.request("GET", "/env") == {"keys": ["API_URL", "MODE"]}
    await site.request("PUT", "/env", 400, json={"not a name": "x"})
    row = await site.application.services.regions["local"].database.execute(text("SELECT variables FROM sites"))
    assert "api.example" not in row.scalar_one()


async def test_building_from_source_is_answered_with_what_to_do_instead(site: Site) -> None:
    refusal = await site.request("POST", "/deployments/from-source", 501, json={})
    assert "docs/sites.md" in refusal["error"]["remediation"]
    await site.request("POST", "/deployments/from-source/x/start", 501, json={})


async def test_what_an_attempt_that_was_killed_has_stored_is_deleted_with_the_zip(site: Site) -> None:
    deployment_id = await site.upload(build_zip(PAGES))
    folder = f"{site.app}/sites/{deployment_id}/"

    async def read() -> AsyncIterator[bytes]:
        yield b"left by a killed attempt"

    objects = site.application.services.regions["local"].objects
    await objects.put(folder + "0" * 64, read(), content_type="text/plain", max_bytes=100)
    await site.request("POST", f"/deployments/{deployment_id}/start", 202)
    await site.work()
    assert (await site.get("/about")).text == "About"
    site.clock.advance(61)
    await site.work()
    keys = await site.list_keys()
    assert (len(keys), folder + "0" * 64 in keys, [key for key in keys if "upload" in key]) == (3, False, [])
    assert (await site.get("/about")).text == "About"
