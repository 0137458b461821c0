"""The page of an app's site: what visitors see, a preview, going back, what was not understood, and its domains."""

import httpx
import pytest

from tests.conftest import Baobab
from tests.http.console.test_console import HOSTILE, find_csrf, sign_in
from tests.http.console.test_runs import Runner
from tests.jobs import run_due_jobs
from tests.tools.sites.conftest import build_zip


async def deploy(visitor: Runner, **files: str) -> str:
    path = f"/v1/{visitor.app_id}/frontend/deployments/files"
    body = {"files": {name.replace("__", "."): text for name, text in files.items()}}
    answer = await visitor.baobab.client.post(path, json=body, headers=visitor.baobab.owner)
    assert answer.status_code == 201, answer.text
    deployment_id: str = answer.json()["id"]
    return deployment_id


async def test_a_deployment_is_previewed_taken_back_and_deleted(baobab: Baobab) -> None:
    visitor = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    path = f"/console/apps/{visitor.app_id}/site"
    assert "No site yet" in (await visitor.open(path)).text
    first = await deploy(visitor, index__html="<h1>One</h1>")
    second = await deploy(visitor, index__html="<h1>Two</h1>", _redirects=HOSTILE)
    page = await visitor.open(path)
    assert f"{path}/{first}/activate" in page.text
    assert f"{path}/{second}/activate" not in page.text
    assert "warning" in page.text
    assert "<script>alert" not in page.text
    preview = await visitor.send(f"{path}/{first}/preview", page)
    assert "signature" in preview.text
    answer = await visitor.send(f"{path}/{first}/activate", page)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    page = await visitor.open(path)
    assert f"{path}/{second}/activate" in page.text
    await visitor.send(f"{path}/{second}/delete", page)
    assert second not in (await visitor.open(path)).text


async def test_a_domain_is_added_checked_and_removed_on_the_page(baobab: Baobab) -> None:
    visitor = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    path = f"/console/apps/{visitor.app_id}/site"
    page = await visitor.open(path)
    assert "No domain of your own yet" in page.text
    refusal = await visitor.send(f"{path}/domains", page, hostname="https://www.shop.example")
    assert (refusal.status_code, "no scheme" in refusal.text) == (400, True)
    answer = await visitor.send(f"{path}/domains", page, hostname="www.shop.example")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path}#domains")
    listing = f"/v1/{visitor.app_id}/custom-domains"
    domain = (await baobab.client.get(listing, headers=baobab.owner)).json()["domains"][0]
    page = await visitor.open(path)
    for record in domain["verification_records"]:
        assert record["name"] in page.text
        assert record["value"] in page.text
    assert "not checked yet" in page.text
    await visitor.send(f"{path}/domains/{domain['id']}/check", page)
    page = await visitor.open(path)
    assert "No resolver answers" in page.text
    await visitor.send(f"{path}/domains/{domain['id']}/remove", page)
    assert "www.shop.example" not in (await visitor.open(path)).text


async def send_files(visitor: Runner, *files: tuple[str, tuple[str, bytes]], csrf: str | None = None) -> httpx.Response:
    """Sends the form as a browser without script does."""
    path = f"/console/apps/{visitor.app_id}/site"
    fields = {"csrf": csrf or find_csrf(await visitor.open(path))}
    return await visitor.baobab.client.post(f"{path}/deploy", data=fields, files=list(files), headers=visitor.browser)


async def read_site(visitor: Runner, path: str) -> str:
    base = f"/v1/{visitor.app_id}/frontend/deployments"
    url = (await visitor.baobab.client.get(base, headers=visitor.baobab.owner)).json()["url"]
    return (await visitor.baobab.client.get(path, headers={"host": url.partition("://")[2]})).text


@pytest.mark.parametrize("is_folder", [False, True], ids=["zip", "folder"])
async def test_a_zip_or_a_folder_is_deployed_with_a_form(baobab: Baobab, *, is_folder: bool) -> None:
    visitor = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    texts = {"dist/index.html": "<h1>Hi</h1>", "dist/assets/app.js": "run()"}
    if is_folder:
        # The input in which nothing was chosen is sent, too.
        chosen_files = [("folder", (path, text.encode())) for path, text in texts.items()]
        answer = await send_files(visitor, ("zip", ("", b"")), *chosen_files)
    else:
        answer = await send_files(visitor, ("zip", ("site.ZIP", build_zip(texts))))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/console/apps/{visitor.app_id}/site"), (
        answer.text
    )
    await run_due_jobs(baobab.application)
    assert await read_site(visitor, "/") == "<h1>Hi</h1>"
    assert await read_site(visitor, "/assets/app.js") == "run()"


async def test_files_come_from_a_page_of_the_session_and_are_bounded(baobab: Baobab) -> None:
    visitor = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    nothing = await send_files(visitor, ("zip", ("", b"")))
    assert (nothing.status_code, "Choose a zip, or a folder." in nothing.text) == (400, True)
    foreign = await send_files(visitor, ("zip", ("a.zip", build_zip({"index.html": "x"}))), csrf="0" * 64)
    assert foreign.status_code == 403
    many = [("folder", (f"{number}.html", b"")) for number in range(2001)]
    assert (await send_files(visitor, *many)).status_code == 400
    large = await send_files(visitor, ("zip", ("a.zip", bytes(102 * 2**20))))
    assert (large.status_code, "too large" in large.text) == (400, True)
    # A form that takes no files does not read any.
    path = f"/console/apps/{visitor.app_id}/name"
    fields = {"csrf": find_csrf(await visitor.open(f"/console/apps/{visitor.app_id}"))}
    answer = await baobab.client.post(path, data=fields, files={"a": ("a", b"b")}, headers=visitor.browser)
    assert answer.status_code == 400
    assert "No site yet" in (await visitor.open(f"/console/apps/{visitor.app_id}/site")).text
