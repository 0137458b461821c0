"""What is at a custom domain: the app's site and its API, as at its subdomain, and nothing of the server's own."""

from typing import Any

from tests.tools.domains.conftest import NAME, Owner

ORIGIN = f"https://{NAME}"


async def test_the_site_and_the_api_of_the_app_are_at_its_domain(owner: Owner) -> None:
    await owner.deploy(kv__html="page", data__html="shadowed")
    await owner.activate()
    assert (await owner.visit("/kv")).text == "page"
    assert (await owner.visit("/missing.js")).status_code == 404
    stats = await owner.client.get("/kv/_stats", headers={"host": NAME, **owner.owner})
    assert stats.status_code == 200
    # The paths that win over files at the subdomain win here.
    assert (await owner.visit("/data/none")).headers["content-type"].startswith("application/json")
    for host in (f"{NAME}:443", f"{NAME}.", NAME.upper()):
        assert (await owner.visit(host=host)).text == "<h1>Shop</h1>", host


async def test_no_page_of_the_server_is_at_a_custom_domain(owner: Owner) -> None:
    await owner.deploy()
    await owner.activate()
    paths = (
        "/console/sign-in",
        "/oauth/authorize",
        "/metrics",
        "/openapi.json",
        "/docs/errors",
        "/tls/ask?domain=x.example",
    )
    for path in paths:
        assert (await owner.visit(path, accept="*/*")).status_code == 404, path
        answer = await owner.client.post(path, headers={"host": NAME, "origin": ORIGIN})
        assert answer.status_code in (404, 405), path
    answer = await owner.visit("/auth/login-page?redirect_to=x")
    assert answer.status_code == 307
    assert answer.headers["location"].startswith(f"https://api.example/auth/{owner.app}/")


async def test_a_page_at_a_custom_domain_is_a_listed_origin_of_its_own_app_only(owner: Owner) -> None:
    await owner.activate()
    other = await owner.create_app()

    async def ask(app: str, origin: str) -> int:
        headers = {"host": "api.example", "origin": origin, **owner.owner}
        return (await owner.client.get(f"/v1/{app}/kv/_stats", headers=headers)).status_code

    assert await ask(owner.app, ORIGIN) == 200
    assert await ask(other, ORIGIN) == 403
    for origin in (f"http://{NAME}", f"https://x.{NAME}", "https://shop.example", f"https://{NAME}.evil.example"):
        assert await ask(owner.app, origin) == 403, origin
    for path in ("/apps", "/platform/me", "/session"):
        headers = {"host": "api.example", "origin": ORIGIN, **owner.owner}
        assert (await owner.client.get(path, headers=headers)).status_code == 403, path


async def test_users_may_be_sent_back_to_a_page_at_a_custom_domain(owner: Owner) -> None:
    await owner.activate()
    path = f"/auth/{owner.app}/login-page"
    for address, is_known in ((f"{ORIGIN}/in", True), ("https://www.other.example/in", False)):
        answer = await owner.client.get(path, params={"redirect_to": address}, headers={"host": "api.example"})
        assert (answer.status_code == 200) is is_known, (address, answer.status_code)


async def test_a_name_that_nobody_holds_costs_one_look_at_most(owner: Owner) -> None:
    statements: list[str] = []
    directory = owner.application.services.directory
    load = directory._domains._load

    async def note(hostname: str) -> str | None:
        statements.append(hostname)
        return await load(hostname)

    directory._domains._load = note
    for _ in range(5):
        assert (await owner.visit(host="www.stranger.example")).status_code == 421
    assert statements == ["www.stranger.example"]
    no_names = ("127.0.0.2", "10.0.0.1:80", "stranger", "a..b", "*.x.example", f"{'a.' * 200}example", "x_y.example")
    for host in no_names:
        assert (await owner.visit(host=host)).status_code == 421, host
    assert statements == ["www.stranger.example"]


async def test_a_name_that_is_removed_or_lost_is_gone_at_once(owner: Owner) -> None:
    await owner.deploy()
    domain_id = await owner.activate()
    assert (await owner.visit()).status_code == 200
    await owner.request("DELETE", f"/{domain_id}")
    assert (await owner.visit()).status_code == 421
    assert (await owner.client.get("/", headers={"host": NAME, "origin": ORIGIN})).status_code == 421


async def test_a_paused_app_shows_no_pages_at_its_domain(owner: Owner) -> None:
    await owner.deploy()
    await owner.activate()
    path = f"/v1/{owner.app}/config/pause"
    assert (await owner.client.patch(path, json={"paused": True}, headers=owner.owner)).status_code == 200
    assert (await owner.visit()).status_code == 503


class TestCertificates:
    """`/tls/ask`, which a proxy on this machine asks."""

    async def ask(self, owner: Owner, name: str, **headers: str) -> int:
        sent_headers = {"host": "127.0.0.1:8000", **{key.replace("_", "-"): value for key, value in headers.items()}}
        answer = await owner.client.get("/tls/ask", params={"domain": name}, headers=sent_headers)
        assert answer.content == b""
        return answer.status_code

    async def test_a_certificate_is_for_names_at_which_something_is_served(self, owner: Owner) -> None:
        await owner.activate()
        await owner.add("www.pending.example")
        config = (await owner.client.get(f"/v1/{owner.app}/config", headers=owner.owner)).json()
        subdomain = config["subdomain"]
        for name in (NAME, NAME.upper(), f"{NAME}.", "api.example", f"{subdomain}.api.example"):
            assert await self.ask(owner, name) == 200, name
        refused_names = (
            *("", "x", "www.pending.example", f"x.{NAME}", "nobody.api.example", f"x.{subdomain}.api.example"),
            *("127.0.0.1", "localhost", "*.api.example", f"{'a.' * 300}example", "b\u00fccher.example", "a b.example"),
            f"preview-{owner.app.removeprefix('app_')}-{'0' * 32}.api.example",
        )
        for name in refused_names:
            assert await self.ask(owner, name) == 404, name

    async def test_a_preview_that_there_is_has_a_certificate(self, owner: Owner) -> None:
        await owner.deploy()
        path = f"/v1/{owner.app}/frontend/deployments"
        deployment = (await owner.client.get(path, headers=owner.owner)).json()["deployments"][0]
        preview = (await owner.client.get(f"{path}/{deployment['id']}/preview", headers=owner.owner)).json()
        assert await self.ask(owner, preview["url"].split("/")[2]) == 200

    async def test_only_a_program_on_this_machine_is_told(self, owner: Owner) -> None:
        await owner.activate()
        assert await self.ask(owner, NAME, x_forwarded_for="203.0.113.9") == 404
        assert await self.ask(owner, NAME, forwarded="for=203.0.113.9") == 404
        assert await self.ask(owner, NAME, host="api.example") == 404
        transport = owner.client._transport
        transport.client = ("203.0.113.9", 4000)  # type: ignore[attr-defined]
        assert await self.ask(owner, NAME) == 404

    async def test_an_answer_takes_the_same_work_for_every_name(self, owner: Owner) -> None:
        await owner.activate()
        database = owner.application.services.database
        execute = database.execute
        counts: list[int] = []

        async def count(*arguments: Any) -> Any:
            counts[-1] += 1
            return await execute(*arguments)

        database.execute = count  # type: ignore[method-assign, assignment]
        for name in (NAME, "www.stranger.example", "", "api.example", "nobody.api.example", "127.0.0.1"):
            for _ in range(2):
                counts.append(0)
                await self.ask(owner, name)
        assert counts == [1] * 12
        assert not any(server.question_counts["www.stranger.example", "CNAME"] for server in owner.servers)
