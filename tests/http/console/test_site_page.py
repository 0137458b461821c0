"""The page of an app's site: what visitors see, a preview, going back, what was not understood, and its domains."""

from tests.conftest import Baobab
from tests.http.console.test_console import HOSTILE, sign_in
from tests.http.console.test_runs import Runner


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
