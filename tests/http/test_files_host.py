"""Where a domain for files is set, what strangers have stored is served from a host of the app's, and from no other."""

import hashlib
import io
from base64 import b64encode
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from PIL import Image
from sqlalchemy import update

from baobab.storage.sql.tables import metadata
from tests.http.installation import App, Installation, open_installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
API, DOMAIN = "api.example", "files.api.example"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    settings = {"base_url": f"https://{API}:8443", "files_domain": DOMAIN, "plan": "certified"}
    async with open_installation(tmp_path_factory.mktemp("world"), **settings) as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(world: Installation) -> App:
    return await world.create_app()


def host_of(app: App) -> str:
    return f"{app.id.replace('_', '-')}.{DOMAIN}:8443"


async def store(world: Installation, app: App) -> str:
    """Stores a file, and returns its address."""
    body = {"filename": "a.txt", "contentType": "text/plain", "content": "hello"}
    stored_answer = await world.ask("POST", f"/storage/{app.id}/objects", world.owner, body, host=API)
    assert stored_answer.status == 201, stored_answer.content
    answer = await world.ask("GET", f"/storage/{app.id}/download/{stored_answer.json['id']}", world.owner, host=API)
    address: str = answer.json["downloadUrl"]
    return address


def take_target(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


async def test_a_file_is_served_from_the_host_of_its_app(world: Installation, app: App) -> None:
    address = await store(world, app)
    assert address.startswith(f"https://{host_of(app)}/storage/{app.id}/content/")
    for method in ("GET", "HEAD"):
        answer = await world.ask(method, take_target(address), host=host_of(app))
        assert (answer.status, answer.headers["content-length"]) == (200, "5")
        assert "set-cookie" not in answer.headers
    part = await world.ask("GET", take_target(address), {"range": "bytes=1-2"}, host=host_of(app).upper())
    assert (part.status, part.content) == (206, b"el")
    forged_answer = await world.ask("GET", take_target(address) + "A", host=host_of(app))
    assert (forged_answer.status, forged_answer.json["error"]["code"]) == (403, "FILE_URL_INVALID")


async def test_a_thumbnail_and_a_content_of_the_repository_are_served_there_too(world: Installation, app: App) -> None:
    picture, content = io.BytesIO(), b"print('hello')"
    Image.new("RGB", (8, 4)).save(picture, "PNG")
    body = {
        "filename": "a.png",
        "contentType": "image/png",
        "content": b64encode(picture.getvalue()).decode(),
        "encoding": "base64",
    }
    stored_answer = await world.ask("POST", f"/storage/{app.id}/objects", world.owner, body, host=API)
    answer = await world.ask("GET", f"/storage/{app.id}/download/{stored_answer.json['id']}", world.owner, host=API)
    digest, base = hashlib.sha256(content).hexdigest(), f"/v1/{app.id}/repo"
    manifest = {"files": [{"path": "a.py", "sha256": digest, "size": len(content)}]}
    prepared_answer = await world.ask("POST", f"{base}/snapshots/prepare", world.owner, manifest, host=API)
    upload = take_target(prepared_answer.json["missing_blobs"][0]["uploadUrl"])
    assert (await world.ask("PUT", upload, content=content, host=API)).status == 200
    blob = await world.ask("GET", f"{base}/blobs/{digest}", world.owner, host=API)
    for address, kind in (
        (answer.json["thumbnailUrl"], "image/webp"),
        (blob.json["downloadUrl"], "application/octet-stream"),
    ):
        assert address.startswith(f"https://{host_of(app)}/"), address
        served_answer = await world.ask("GET", take_target(address), host=host_of(app))
        assert (served_answer.status, served_answer.headers["content-type"]) == (200, kind)
        elsewhere = await world.ask("GET", take_target(address), host=API)
        assert (elsewhere.status, elsewhere.headers["location"]) == (307, address)
        forged_answer = await world.ask("GET", take_target(address) + "A", host=host_of(app))
        assert (forged_answer.status, forged_answer.json["error"]["code"]) == (403, "FILE_URL_INVALID")


async def test_pages_of_the_console_may_show_pictures_from_there(world: Installation) -> None:
    page = await world.ask("GET", "/console/sign-in", host=API)
    assert f"img-src 'self' https://*.{DOMAIN}:8443 data:;" in page.headers["content-security-policy"]


async def test_other_hosts_send_readers_there(world: Installation, app: App) -> None:
    address = await store(world, app)
    target = take_target(address)
    encoded_target = target.replace("app_", "app%5F")
    for host in (API, "127.0.0.1:8000"):
        for request_target in (target, encoded_target):
            answer = await world.ask("GET", request_target, host=host)
            assert (answer.status, answer.content) == (307, b""), (host, request_target)
            location = answer.headers["location"]
            assert location == f"https://{host_of(app)}{request_target}"
            assert (await world.ask("GET", take_target(location), host=host_of(app))).content == b"hello"
    short = target.replace(f"/storage/{app.id}/", "/storage/")
    answer = await world.ask("GET", short, host=f"{app.subdomain}.{API}")
    assert answer.headers["location"] == address
    for wrong in ("evil.example%2F", "app_1", "app_%0d%0a", "app_" + "a" * 40):
        answer = await world.ask("GET", target.replace(app.id, wrong), host=API)
        assert answer.status in (400, 403, 404), wrong
        assert "location" not in answer.headers


async def test_the_host_of_files_serves_the_files_of_its_app_and_nothing_else(world: Installation, app: App) -> None:
    address, other = await store(world, app), await world.create_app()
    target = take_target(address)
    requests = [
        ("GET", target, host_of(other)),
        ("PUT", target, host_of(app)),
        ("GET", f"/storage/{app.id}/objects", host_of(app)),
        ("POST", f"/storage/{app.id}/upload", host_of(app)),
    ]
    paths = (
        "/",
        "/console",
        "/docs",
        "/health",
        "/mcp",
        "/apps",
        "/openapi.json",
        "/.well-known/oauth-protected-resource",
    )
    requests += [("GET", path, host_of(app)) for path in paths]
    for method, request_target, host in requests:
        answer = await world.ask(method, request_target, world.owner, host=host)
        assert (answer.status, answer.json["error"]["code"]) == (421, "HOST_REFUSED"), (method, request_target)
    for host in (DOMAIN, f"a.b.{DOMAIN}", f"app-1.{DOMAIN}", f"app_.{DOMAIN}", f".{DOMAIN}", f"x{DOMAIN}"):
        answer = await world.ask("GET", target, host=host)
        assert answer.status in (404, 421), host


async def test_a_page_at_the_host_of_files_is_no_page_of_the_platform(world: Installation, app: App) -> None:
    for origin in (f"https://{host_of(app)}", f"https://{DOMAIN}:8443", f"https://x.{DOMAIN}"):
        answer = await world.ask("GET", "/apps", world.owner | {"origin": origin}, host=API)
        assert answer.status == 403, origin
    address = await store(world, app)
    origin = "https://shop.example"
    changed_answer = await world.ask(
        "PATCH", f"/v1/{app.id}/config/cors", world.owner, {"allowed_origins": [origin]}, host=API
    )
    assert changed_answer.status == 200
    preflight_headers = {
        "origin": origin,
        "access-control-request-method": "GET",
        "access-control-request-headers": "range",
    }
    preflight = await world.ask("OPTIONS", take_target(address), preflight_headers, host=host_of(app))
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, origin)
    served_answer = await world.ask("GET", take_target(address), {"origin": origin}, host=host_of(app))
    assert (served_answer.status, served_answer.headers["access-control-allow-origin"]) == (200, origin)


async def test_a_published_file_is_served_from_the_host_of_its_app_alone(world: Installation, app: App) -> None:
    address = await store(world, app)
    file_id = urlsplit(address).path.rpartition("/")[2]
    path = f"/storage/{app.id}/objects/{file_id}"
    answer = await world.ask("PATCH", path, world.owner, {"published": True}, host=API)
    url = answer.json["published_url"]
    assert url == f"https://{host_of(app)}/storage/{app.id}/published/{file_id}"
    answer = await world.ask("GET", take_target(url), host=host_of(app))
    assert (answer.status, answer.content, answer.headers["cache-control"]) == (200, b"hello", "public, no-cache")
    assert "set-cookie" not in answer.headers
    # The API's host and the app's own send there, and a stranger's host of files has nothing.
    for host, target in ((API, take_target(url)), (f"{app.subdomain}.{API}", f"/storage/published/{file_id}")):
        answer = await world.ask("GET", target, host=host)
        assert (answer.status, answer.headers["location"]) == (307, url)
    stranger = await world.create_app()
    other_host = f"{stranger.id.replace('_', '-')}.{DOMAIN}:8443"
    assert (await world.ask("GET", take_target(url), host=other_host)).status == 421
    other_target = take_target(url).replace(app.id, stranger.id)
    assert (await world.ask("GET", other_target, host=other_host)).status == 404


async def test_a_published_file_waits_for_the_next_month_when_the_plan_is_used_up(world: Installation) -> None:
    app = await world.create_app()
    address = await store(world, app)
    file_id = urlsplit(address).path.rpartition("/")[2]
    await world.ask("PATCH", f"/storage/{app.id}/objects/{file_id}", world.owner, {"published": True}, host=API)
    target = f"/storage/{app.id}/published/{file_id}"
    assert (await world.ask("GET", target, host=host_of(app))).status == 200
    services = world.application.services
    for flush in services.flushes:
        await flush()
    async with services.regions["local"].database.writing(lock=app.id) as connection:
        table = metadata.tables["file_traffic"]
        await connection.execute(update(table).where(table.c.app_id == app.id).values(sent_bytes=250 * 2**30))
    refusal = await world.ask("GET", target, host=host_of(app))
    assert (refusal.status, refusal.json["error"]["code"]) == (429, "QUOTA_BANDWIDTH_EXCEEDED")
    # Whoever has a signed address goes on.
    assert (await world.ask("GET", take_target(address), host=host_of(app))).status == 200
