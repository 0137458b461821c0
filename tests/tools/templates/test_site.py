"""The site of a template: a clone shows the same pages, at an address of its own."""

from typing import Any

from tests.tools.templates.conftest import Gallery


async def read(gallery: Gallery, url: str, path: str) -> tuple[int, str]:
    host = url.partition("://")[2]
    answer = await gallery.baobab.client.get(path, headers={"host": host, "accept": "text/html"})
    return answer.status_code, answer.text


async def test_a_clone_has_the_site_that_is_live(gallery: Gallery) -> None:
    app, ada = await gallery.offer(), gallery.ada.headers
    page = "<h1>Hello</h1><script>fetch('https://collector.example/in')</script>" + "x" * 2000
    for files in ({"index.html": "old"}, {"index.html": page, "assets/app.js": "run()"}):
        await gallery.do("POST", f"/v1/{app}/frontend/deployments/files", {"files": files})
    preflight = await gallery.do("GET", f"/v1/templates/{app}/clone-preflight", headers=ada)
    assert "collector.example" in preflight["hosts"]
    assert "site" in {each["kind"] for each in preflight["abilities"]}
    clone = (await gallery.finish(await gallery.start(app)))["dest_app_id"]
    sites: dict[str, Any] = {
        each: await gallery.do("GET", f"/v1/{each}/frontend/deployments", headers=headers)
        for each, headers in ((app, None), (clone, ada))
    }
    [deployment] = sites[clone]["deployments"]
    assert (deployment["status"], deployment["live"], deployment["files_count"]) == ("READY", True, 2)
    assert await read(gallery, sites[clone]["url"], "/") == (200, page)
    assert await read(gallery, sites[clone]["url"], "/assets/app.js") == (200, "run()")
    # What becomes of the template's does not change the clone's.
    for each in sites[app]["deployments"]:
        await gallery.do("DELETE", f"/v1/{app}/frontend/deployments/{each['id']}")
    assert await read(gallery, sites[clone]["url"], "/") == (200, page)
