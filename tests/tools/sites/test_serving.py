"""Pages as browsers ask for them: clean addresses, caches, ranges, compression, fallbacks, rules."""

import gzip

import httpx
import pytest
from sqlalchemy import text

from tests.statement_count import count_statements
from tests.tools.sites.conftest import PAGE, Site, make_app

LONG = "<p>line of a page</p>\n" * 200


async def test_a_page_has_one_address_without_its_ending(site: Site) -> None:
    await site.deploy({"index.html": "home", "about.html": "about", "docs/index.html": "docs", "docs/a b.html": "a b"})
    for path, content in {
        "/": "home",
        "/about": "about",
        "/about.html": "about",
        "/docs/": "docs",
        "/docs/a%20b": "a b",
    }.items():
        answer = await site.get(path + "?utm_source=x&utm_source=y")
        assert (answer.status_code, answer.text) == (200, content), path
    for path, location in {"/docs": "/docs/", "/about/": "/about"}.items():
        answer = await site.get(path)
        assert (answer.status_code, answer.headers["location"]) == (308, location), path
    for path in (
        "/docs//",
        "/%2e%2e/about",
        "/docs/..%2fabout",
        "/a%00b",
        "/nothing.js",
    ):
        assert (await site.get(path)).status_code in (400, 404), path


async def test_browsers_keep_pages_by_their_tags_and_hashed_files_for_ever(site: Site) -> None:
    await site.deploy({"index.html": LONG, "assets/index-BkX3jv9d.js": "x" * 600, "app.js": "y"})
    page = await site.get("/")
    assert page.headers["cache-control"] == "no-cache"
    unchanged_answer = await site.get("/", if_none_match=page.headers["etag"])
    assert (unchanged_answer.status_code, unchanged_answer.content) == (304, b"")
    assert unchanged_answer.headers["etag"] == page.headers["etag"]
    assert (await site.get("/assets/index-BkX3jv9d.js")).headers[
        "cache-control"
    ] == "public, max-age=31536000, immutable"
    assert (await site.get("/app.js")).headers["cache-control"] == "no-cache"
    head = await site.get("/", method="HEAD", accept_encoding="identity")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(LONG)))
    await site.write(index__html="changed")
    assert (await site.get("/", if_none_match=page.headers["etag"])).status_code == 200


async def test_what_is_worth_it_is_sent_compressed_as_it_was_compressed_once(site: Site) -> None:
    await site.deploy({"index.html": LONG, "small.txt": "small"})
    async with site.client.stream(
        "GET", "/", headers={"host": site.host, "accept-encoding": "br, gzip;q=0.8"}
    ) as answer:
        raw = b"".join([part async for part in answer.aiter_raw()])
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert (len(raw), gzip.decompress(raw).decode()) == (int(answer.headers["content-length"]), LONG)
    for encodings in ("identity", "gzip;q=0", "br"):
        plain = await site.get("/", accept_encoding=encodings)
        assert ("content-encoding" in plain.headers, plain.text) == (False, LONG), encodings
        assert plain.headers["etag"] != answer.headers["etag"]
    assert "content-encoding" not in (await site.get("/small.txt", accept_encoding="gzip")).headers


async def test_a_file_that_was_deployed_compressed_with_brotli_is_sent_to_those_who_take_it(site: Site) -> None:
    small = b"\x8b\x07\x80run()\n\x03"
    await site.deploy({"index.html": LONG, "app.js": "run()\n" + "x" * 2000, "app.js.br": small})

    async def read(path: str, **headers: str) -> tuple[httpx.Response, bytes]:
        async with site.client.stream("GET", path, headers={"host": site.host, **headers}) as answer:
            return answer, b"".join([part async for part in answer.aiter_raw()])

    answer, raw = await read("/app.js", **{"accept-encoding": "gzip, deflate, br"})
    assert (answer.headers["content-encoding"], raw) == ("br", small)
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (answer.headers["vary"], answer.headers["content-length"]) == ("Accept-Encoding", str(len(small)))
    same, _ = await read("/app.js", **{"accept-encoding": "br", "if-none-match": answer.headers["etag"]})
    assert same.status_code == 304
    tags = {answer.headers["etag"]}
    for encodings, sent_encoding in (("gzip, br;q=0", "gzip"), ("identity", None)):
        answer, _ = await read("/app.js", **{"accept-encoding": encodings})
        assert answer.headers.get("content-encoding") == sent_encoding
        assert answer.headers["vary"] == "Accept-Encoding"
        tags.add(answer.headers["etag"])
    assert len(tags) == 3
    part, raw = await read("/app.js", **{"accept-encoding": "br", "range": "bytes=0-2"})
    assert (part.status_code, raw, "content-encoding" in part.headers) == (206, b"run", False)
    other, _ = await read("/", **{"accept-encoding": "br"})
    assert "content-encoding" not in other.headers


async def test_a_range_is_of_the_bytes_of_the_file(site: Site) -> None:
    await site.deploy({"index.html": "home", "clip.mp4": b"0123456789"})
    part = await site.get("/clip.mp4", range="bytes=2-4", accept_encoding="gzip")
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    tag = part.headers["etag"]
    assert (await site.get("/clip.mp4", range="bytes=-3", if_range=tag)).content == b"789"
    assert (await site.get("/clip.mp4", range="bytes=-3", if_range='"other"')).status_code == 200
    beyond = await site.get("/clip.mp4", range="bytes=10-")
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */10")


async def test_only_a_browser_that_wants_a_page_gets_the_page_of_a_single_page_application(site: Site) -> None:
    await site.deploy({"index.html": "app"})
    page = await site.get("/orders/7", **PAGE)
    assert (page.status_code, page.text, page.headers["cache-control"]) == (200, "app", "no-cache")
    for path, headers in (("/orders/7", {}), ("/missing.js", PAGE), ("/orders/7", {"accept": "application/json"})):
        answer = await site.get(path, **headers)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8"), path
    refusal = await site.get("/orders/7", method="POST", **PAGE)
    assert refusal.status_code in (404, 405)


async def test_a_page_for_what_is_not_found_is_sent_with_404(site: Site) -> None:
    await site.deploy({"index.html": "home", "404.html": "lost"})
    for path, headers in (("/orders/7", PAGE), ("/missing.js", {})):
        answer = await site.get(path, **headers)
        assert (answer.status_code, answer.text) == (404, "lost"), path
    await site.deploy({"index.html": "home", "404.html": "lost", "200.html": "shell"})
    assert (await site.get("/orders/7", **PAGE)).text == "shell"
    assert (await site.get("/missing.js")).text == "lost"


async def test_headers_are_set_for_the_site_itself_and_for_nothing_beyond_it(site: Site) -> None:
    headers = """# comment
/*
  X-Frame-Options: DENY
  Set-Cookie: a=b; Domain=localhost
  Strict-Transport-Security: max-age=1; includeSubDomains
  Clear-Site-Data: "*"
/assets/*
  Cache-Control: public, max-age=60
  X-Request-Id: forged
  Not a header
nonsense
  X-Own: 1
"""
    deployment = await site.deploy({"index.html": "home", "assets/a.css": "a{}", "_headers": headers})
    assert deployment["files_count"] == 2
    warnings = " ".join(deployment["warnings"])
    for name in (
        "`set-cookie`",
        "`strict-transport-security`",
        "`clear-site-data`",
        "`x-request-id`",
        "line 10",
        "line 11",
    ):
        assert name in warnings, name
    page = await site.get("/")
    assert page.headers["x-frame-options"] == "DENY"
    assert not {"set-cookie", "strict-transport-security", "clear-site-data", "x-own"} & set(page.headers)
    assert (await site.get("/assets/a.css")).headers["cache-control"] == "public, max-age=60"
    assert (await site.get("/_headers")).status_code == 404


async def test_redirects_lead_on_and_never_in_a_circle(site: Site) -> None:
    redirects = """
/old /new
/blog/:slug /posts/:slug 302
/ext/* https://example.com/:splat 307
/app/* /shell.html 200
/a /b
/b /a
/self/* /self/x/:splat
/away/* /:splat
/bad ftp://x.example
/worse //evil.example
"""
    files = {
        "index.html": "home",
        "404.html": "lost",
        "new.html": "new",
        "shell.html": "shell",
        "_redirects": redirects,
    }
    deployment = await site.deploy(files)
    warnings = " ".join(deployment["warnings"])
    assert all(name in warnings for name in ("`/a`", "`/b`", "`/self/*`", "line 10", "line 11")), warnings
    cases = {
        "/old": (301, "/new"),
        "/blog/one": (302, "/posts/one"),
        "/ext/a/b": (307, "https://example.com/a/b"),
        "/away/%2Fevil.example": (301, "/evil.example"),
    }
    for path, (status, location) in cases.items():
        answer = await site.get(path)
        assert (answer.status_code, answer.headers.get("location")) == (status, location), path
    assert (await site.get("/app/deep")).text == "shell"
    for path in ("/a", "/b", "/self/y", "/bad", "/worse"):
        assert (await site.get(path)).status_code == 404, path
    # A file wins over a redirect.
    await site.deploy({"index.html": "home", "old.html": "still here", "_redirects": "/old /new"})
    assert (await site.get("/old")).text == "still here"


async def test_a_paused_app_shows_no_pages(site: Site) -> None:
    await site.write(index__html="home")
    pause = f"/v1/{site.app}/config/pause"
    answer = await site.client.patch(pause, json={"paused": True, "reason": "maintenance"}, headers=site.owner)
    assert answer.status_code == 200, answer.text
    refusal = await site.get("/")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "APP_PAUSED")
    await site.client.patch(pause, json={"paused": False}, headers=site.owner)
    assert (await site.get("/")).status_code == 200


async def test_a_preview_has_a_host_of_its_own_for_those_who_have_its_address(site: Site) -> None:
    first = await site.write(index__html="one", about__html="about one")
    await site.write(index__html="two")
    preview = await site.request("GET", f"/deployments/{first['id']}/preview")
    host, _, query = preview["url"].removeprefix("http://").partition("/")
    assert host.startswith("preview-")
    assert (await site.get("/", host)).status_code == 403
    opened_answer = await site.get(f"/{query}", host)
    assert (opened_answer.status_code, opened_answer.headers["location"]) == (303, "/")
    cookie = opened_answer.headers["set-cookie"]
    assert ("HttpOnly" in cookie, "Domain" in cookie) == (True, False)
    cookie_text = cookie.partition(";")[0]
    page = await site.get("/", host, cookie=cookie_text)
    assert (page.status_code, page.text, page.headers["cache-control"]) == (200, "one", "private, no-store")
    assert (page.headers["x-robots-tag"], (await site.get("/about", host, cookie=cookie_text)).text) == (
        "noindex",
        "about one",
    )
    assert (await site.get("/")).text == "two"
    # The cookie opens no other deployment, and not for ever.
    other, _ = await make_app(site)
    stranger = host.replace(site.app.removeprefix("app_"), other.removeprefix("app_"))
    assert (await site.get("/", stranger, cookie=cookie_text)).status_code == 403
    forged_cookie = f"{cookie_text[:-4]}AAAA"
    assert (await site.get("/", host, cookie=forged_cookie)).status_code == 403
    site.clock.advance(3601)
    assert (await site.get("/", host, cookie=cookie_text)).status_code == 403


async def test_what_a_site_sends_is_counted_and_ends_with_the_plan(site: Site) -> None:
    await site.write(index__html="x" * 100)
    for _ in range(3):
        await site.get("/", accept_encoding="identity")
    for flush in site.application.services.flushes:
        await flush()
    traffic = (await site.request("GET", "/deployments"))["traffic"]
    assert (traffic["sent_bytes"], traffic["requests"]) == (300, 3)
    database = site.application.services.regions["local"].database
    async with database.writing(lock=site.app) as connection:
        await connection.execute(text("UPDATE site_traffic SET sent_bytes = :sent"), {"sent": 100 * 2**30})
    refusal = await site.get("/")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (429, "QUOTA_BANDWIDTH_EXCEEDED")
    site.clock.advance(32 * 86400)
    assert (await site.get("/")).status_code == 200


@pytest.mark.parametrize("path", ["/v1/{app}/frontend/pages/about", "/v1/{app}/frontend/pages/"])
async def test_no_page_is_on_the_host_of_the_api(site: Site, path: str) -> None:
    await site.write(index__html="home", about__html="about")
    answer = await site.client.get(path.format(app=site.app))
    assert (answer.status_code, answer.content) == (307, b"")
    assert answer.headers["location"] == f"http://{site.host}/{path.partition('pages/')[2]}"
    for target in ("/", "/about"):
        assert "about" not in (await site.client.get(target)).text


async def test_a_file_that_was_asked_for_costs_one_query_and_a_new_deployment_shows_at_once(site: Site) -> None:
    await site.write(index__html="<h1>One</h1>", app__js="run()", _redirects="/old /app.js 200")
    for path in ("/", "/app.js", "/missing.js", "/old"):
        counts = []
        # The first call on a connection asks more, and so does one beside which a job runs.
        for _ in range(5):
            with count_statements() as count:
                await site.get(path, accept="*/*")
            counts.append(len(count.texts))
        # Only Postgres is counted.
        assert min(counts) <= 1, path
    await site.write(index__html="<h1>Two</h1>")
    assert "Two" in (await site.get("/")).text
    assert (await site.get("/app.js")).status_code == 404
    first = (await site.request("GET", "/deployments"))["deployments"][-1]["id"]
    await site.request("POST", f"/deployments/{first}/activate")
    assert "One" in (await site.get("/")).text
    assert (await site.get("/app.js")).text == "run()"


async def test_browsers_get_a_page_for_what_went_wrong_and_programs_the_error(site: Site) -> None:
    async def read(path: str, host: str = "") -> list[tuple[int, str]]:
        answers = [await site.get(path, host, accept=accept) for accept in (PAGE["accept"], "application/json")]
        return [(answer.status_code, answer.headers["content-type"].partition(";")[0]) for answer in answers]

    both = ["text/html", "application/json"]
    assert await read("/") == [(404, each) for each in both]
    assert await read("/", "nobody-has-this.localhost:8000") == [(404, each) for each in both]
    page = await site.get("/", accept=PAGE["accept"])
    assert "This app has no site." in page.text
    # What only those who run the app can do is not said to its visitors.
    assert "sites_deploy_files" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    await site.write(index__html="home", **{"404__html": "lost"})
    assert await read("/nothing") == [(404, "text/html"), (404, "text/html")]
    await site.write(about__html="home")
    assert await read("/nothing") == [(404, "text/html"), (404, "text/plain")]
    await site.client.patch(f"/v1/{site.app}/config/pause", json={"paused": True}, headers=site.owner)
    assert await read("/about") == [(503, each) for each in both]
    # The API on the same host answers as an API.
    assert await read("/data/notes") == [(503, "application/json")] * 2
