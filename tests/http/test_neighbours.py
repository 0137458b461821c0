"""A site next door: what a page of another app on the same base domain can do to the console, sessions, consent and
sign-in of this server, and to other apps. Nothing.
"""

from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from tests.http.installation import App, Installation, open_installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
API = "api.example"
PAGE = {"accept": "text/html"}
CORS = "access-control-allow-origin"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    settings = {"base_url": f"https://{API}", "plan": "enterprise", "metrics_token": "m" * 32}
    async with open_installation(tmp_path_factory.mktemp("world"), **settings) as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def evil(world: Installation) -> App:
    """The app next door, whose site a stranger has deployed."""
    app = await world.create_app()
    files = {"index.html": "<script>attack()</script>", "console/index.html": "fake", "docs.html": "fake docs"}
    path = f"/v1/{app.id}/frontend/deployments/files"
    answer = await world.ask("POST", path, world.owner, {"files": files}, host=API)
    assert answer.status == 201, answer.content
    return app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(world: Installation) -> App:
    return await world.create_app()


def host_of(app: App) -> str:
    return f"{app.subdomain}.{API}"


def origin_of(app: App) -> str:
    return f"https://{host_of(app)}"


async def test_a_page_may_call_its_own_app_and_no_other_and_not_the_platform(
    world: Installation, evil: App, shop: App
) -> None:
    own = {"origin": origin_of(evil)}
    answer = await world.ask("GET", f"{evil.kv}/_stats", world.owner | own, host=API)
    assert (answer.status, answer.headers[CORS]) == (200, origin_of(evil))
    assert (await world.ask("OPTIONS", f"{evil.kv}/a", own | PREFLIGHT, host=API)).status == 204
    targets = [
        (f"{shop.kv}/_stats", API),
        ("/kv/_stats", host_of(shop)),
        ("/data/orders", host_of(shop)),
        (f"/auth/{shop.id}/login", API),
        ("/apps", API),
        ("/platform/me", API),
        ("/platform/login", API),
        ("/v1/approvals", API),
        ("/mcp", API),
        ("/oauth/authorize", API),
        ("/session", API),
        ("/console", API),
        ("/api-keys", API),
    ]
    for path, host in targets:
        for method in ("GET", "POST", "OPTIONS"):
            headers = world.owner | own | (PREFLIGHT if method == "OPTIONS" else {})
            answer = await world.ask(method, path, headers, host=host)
            assert answer.status == 403, (method, path, answer.content)
            assert CORS not in answer.headers


async def test_no_other_spelling_of_an_origin_is_the_apps_own(world: Installation, evil: App, shop: App) -> None:
    label = shop.subdomain
    for origin in (
        f"http://{label}.{API}",
        f"https://x.{label}.{API}",
        f"https://{label}.{API}.evil.example",
        f"https://{label}{API}",
        f"https://{label}.{API}@evil.example",
        f"https://.{API}",
        f"https://preview-{evil.id.removeprefix('app_')}-{'0' * 32}.{API}",
        "null",
    ):
        answer = await world.ask("GET", f"{shop.kv}/_stats", world.owner | {"origin": origin}, host=API)
        assert (answer.status, CORS in answer.headers) == (403, False), origin


async def test_a_form_next_door_does_nothing_in_the_console_or_in_a_session(world: Installation, evil: App) -> None:
    key = world.owner["authorization"].removeprefix("Bearer ")
    form = urlencode({"key": key, "csrf": "0" * 64}).encode()
    kind = {"content-type": "application/x-www-form-urlencoded"}
    own = kind | {"origin": f"https://{API}", "sec-fetch-site": "same-origin"}
    signed_in = await world.ask("POST", "/console/sign-in", own, content=form, host=API)
    cookie = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
    assert cookie["cookie"].startswith("__Host-baobab_console=")
    # With its origin, as browsers send it; and without one of the two, as older browsers do.
    attacks = ({"sec-fetch-site": "same-site", "origin": origin_of(evil)}, {"sec-fetch-site": "same-site"})
    for browser_headers in (*attacks, {"origin": origin_of(evil)}, {"origin": "null"}):
        for path in ("/console/sign-in", "/console/sign-out", f"/console/apps/{evil.id}/delete", "/session"):
            answer = await world.ask("POST", path, kind | browser_headers | cookie, content=form, host=API)
            assert answer.status in (400, 401, 403, 404), (path, browser_headers, answer.status)
            assert "__Host-" not in answer.headers.get("set-cookie", "=").partition("=")[2], path
        login = f"/auth/{evil.id}/login-page"
        assert (await world.ask("POST", login, kind | browser_headers, content=form, host=API)).status in (400, 403), (
            browser_headers
        )
    assert (await world.ask("GET", "/console", PAGE | cookie, host=API)).status == 200


async def test_no_page_of_the_server_lets_itself_be_framed_next_door(world: Installation, shop: App) -> None:
    for path in ("/console", "/console/sign-in", f"/auth/{shop.id}/login-page"):
        answer = await world.ask("GET", path, PAGE, host=API)
        if answer.status in (302, 303, 307):
            continue
        policy = answer.headers.get("content-security-policy", "")
        assert "frame-ancestors 'none'" in policy or answer.headers.get("x-frame-options") == "DENY", path


async def test_no_page_of_the_server_is_on_the_host_of_a_site(world: Installation, evil: App) -> None:
    host = host_of(evil)
    # What the site has under such a name is its own, and what it has not is nowhere.
    assert (await world.ask("GET", "/console/", PAGE, host=host)).content == b"fake"
    assert (await world.ask("GET", "/docs", PAGE, host=host)).content == b"fake docs"
    for path in ("/console/sign-in", "/oauth/authorize", "/metrics", "/approvals", "/openapi.json", "/login"):
        answer = await world.ask("GET", path, {"accept": "*/*"}, host=host)
        assert answer.status == 404, path
        post_answer = await world.ask(
            "POST", path, {"sec-fetch-site": "same-origin", "origin": origin_of(evil)}, host=host
        )
        assert post_answer.status in (404, 405), path
    # The hosted pages, into which people type passwords, are on the server's own host only.
    for path in ("/auth/login-page?redirect_to=x", "/auth/approvals"):
        answer = await world.ask("GET", path, PAGE, host=host)
        assert answer.status == 307, path
        assert answer.headers["location"].startswith(f"https://{API}/auth/{evil.id}/"), path
    for host_of_api in (API, "127.0.0.1:8000"):
        for path in ("/", "/index.html", f"/v1/{evil.id}/frontend/pages/"):
            assert b"attack()" not in (await world.ask("GET", path, PAGE, host=host_of_api)).content


async def test_a_cookie_for_the_parent_domain_is_nobodys_session(world: Installation) -> None:
    key = world.owner["authorization"].removeprefix("Bearer ")
    page = {"x-baobab-page": "1", "origin": f"https://{API}", "sec-fetch-site": "same-origin"}
    answer = await world.ask("POST", "/session", page, {"key": key}, host=API)
    cookie = answer.headers["set-cookie"]
    name, _, value = cookie.partition(";")[0].partition("=")
    assert name.startswith("__Host-")
    assert ("Path=/;" in cookie + ";", "Secure" in cookie, "omain" in cookie) == (True, True, False)
    assert (await world.ask("POST", "/session/token", page | {"cookie": f"{name}={value}"}, host=API)).status == 200
    # A page next door can set any name but those with the prefix.
    foreign_cookies = {"cookie": f"{name.removeprefix('__Host-')}={value}; baobab_console={value}"}
    assert (await world.ask("POST", "/session/token", page | foreign_cookies, host=API)).status == 401
    assert (await world.ask("GET", "/console", PAGE | foreign_cookies, host=API)).status in (302, 303, 307)


async def test_sites_can_have_a_domain_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("own")
    async with open_installation(folder, base_url=f"https://{API}", sites_domain="pages.example") as installation:
        app = await installation.create_app()
        path = f"/v1/{app.id}/frontend/deployments/files"
        body = {"files": {"index.html": "home", "kv.html": "page"}}
        deployment_answer = await installation.ask("POST", path, installation.owner, body, host=API)
        host = f"{app.subdomain}.pages.example"
        assert deployment_answer.json["url"] == f"https://{host}"
        assert (await installation.ask("GET", "/", PAGE, host=host)).content == b"home"
        moved_answer = await installation.ask("GET", "/kv?x=1", PAGE, host=f"{app.subdomain}.{API}")
        assert (moved_answer.status, moved_answer.headers["location"]) == (307, f"https://{host}/kv?x=1")
        for own_host in (host, f"{app.subdomain}.{API}"):
            stats = await installation.ask("GET", "/kv/_stats", installation.owner, host=own_host)
            assert stats.status == 200, own_host
        own = {"origin": f"https://{host}"}
        answer = await installation.ask("GET", f"{app.kv}/_stats", installation.owner | own, host=API)
        assert (answer.status, answer.headers[CORS]) == (200, f"https://{host}")
        refusal = await installation.ask("GET", "/apps", installation.owner | own, host=API)
        assert refusal.status == 403
        preview_path = f"/v1/{app.id}/frontend/deployments/{deployment_answer.json['id']}/preview"
        preview = (await installation.ask("GET", preview_path, installation.owner, host=API)).json["url"]
        preview_host, _, query = preview.removeprefix("https://").partition("/")
        opened_answer = await installation.ask("GET", f"/{query}", PAGE, host=preview_host)
        cookie = opened_answer.headers["set-cookie"]
        assert (cookie.startswith("__Host-"), "; Secure" in cookie) == (True, True)
        browser_headers = {"cookie": cookie.partition(";")[0]}
        assert (await installation.ask("GET", "/", PAGE | browser_headers, host=preview_host)).content == b"home"
