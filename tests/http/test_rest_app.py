"""The REST interface: routes, methods, request ids, allowances, hosts, origins, bodies."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.http.installation import Answer, App, Installation, bearer_headers, open_installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


def check_refusal(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert answer.status == status, answer.content
    error: dict[str, Any] = answer.json["error"]
    assert error["code"] == code
    assert error["message"]
    assert error["remediation"]
    assert error["documentation_url"].endswith("/docs/errors#" + code.lower().replace("_", "-"))
    return error


# Routes and methods


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/v1", "/v1/", "/v2/x", "/apps/", "/init/", "//init", "/v1/app_x/a/b/c",
    "/INIT",
     "/health/", "/../init", "/init/..", "/%69nit", "/init%2F", "/x" * 2000, "/v1/{app_id}/config/", "/\xff", "/%"],
)  # fmt: skip
async def test_a_path_without_an_operation_is_not_found(world: Installation, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "BREW"):
        check_refusal(await world.ask(method, path, world.owner), 404, "RESOURCE_NOT_FOUND")


async def test_where_an_app_is_looked_for_its_parts_are_named(world: Installation) -> None:
    answer = await world.ask("GET", "/v1/app_x1x1x1", world.owner)
    check_refusal(answer, 404, "RESOURCE_NOT_FOUND")
    assert "GET /v1/app_x1x1x1/config" in answer.json["error"]["remediation"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/init", "OPTIONS, POST"),
        ("POST", "/apps", "GET, HEAD, OPTIONS"),
        ("PUT", "/apps/app_000000", "DELETE, OPTIONS, PATCH"),
        ("HEAD", "/init", "OPTIONS, POST"),
        ("BREW", "/health", "GET, HEAD, OPTIONS"),
        ("TRACE", "/health", "GET, HEAD, OPTIONS"),
        ("get", "/health", "GET, HEAD, OPTIONS"),
        ("CONNECT", "/health", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_does(
    world: Installation, method: str, path: str, allow: str
) -> None:
    answer = await world.ask(method, path, world.owner)
    check_refusal(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == allow
    options = await world.ask("OPTIONS", path)
    assert (options.status, options.content, options.headers["allow"]) == (204, b"", allow)


async def test_head_is_answered_with_the_headers_of_get(world: Installation, app: App) -> None:
    for path in ("/health", "/llms.txt", f"/v1/{app.id}/config"):
        get, head = await world.ask("GET", path, world.owner), await world.ask("HEAD", path, world.owner)
        assert get.status == head.status == 200
        for name in ("content-type", "content-length"):
            assert get.headers[name] == head.headers[name]


# Request ids and what every answer carries


@pytest.mark.parametrize("request_id", ["a", "req_1", "A.b-c_9", "x" * 64, "550e8400-e29b-41d4-a716-446655440000"])
async def test_a_request_id_that_is_given_comes_back(world: Installation, request_id: str) -> None:
    for path in ("/health", "/nothing", "/docs"):
        assert (await world.ask("GET", path, {"x-request-id": request_id})).headers["x-request-id"] == request_id


@pytest.mark.parametrize("request_id", [None, "", " ", "a b", "x" * 65, "\xe9", "a\r\nb: c", "a;b", "<script>", "../a"])
async def test_any_other_request_id_is_replaced_by_one_of_ours(world: Installation, request_id: str | None) -> None:
    headers = {} if request_id is None else {"x-request-id": request_id}
    ids = [(await world.ask("GET", "/health", headers)).headers["x-request-id"] for _ in range(3)]
    assert all(re.fullmatch(r"req_[0-9a-f]{11,}", one) for one in ids)
    assert len(set(ids)) == 3


async def test_every_answer_forbids_sniffing_and_names_its_request_once(world: Installation, app: App) -> None:
    for method, path in [
        ("GET", "/health"),
        ("GET", "/nothing"),
        ("GET", "/docs"),
        ("OPTIONS", "/init"),
        ("GET", app.kv + "/a"),
    ]:
        answer = await world.ask(method, path)
        names = [name for name, _ in answer.pairs]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert names.count("x-request-id") == names.count("x-content-type-options") == 1


async def test_a_caller_is_told_what_is_left_of_its_allowance(world: Installation) -> None:
    key = await world.create_key(world.owner)
    for remaining_count in (599, 598):
        answer = await world.ask("GET", "/apps", key)
        assert answer.headers["ratelimit-policy"] == '"caller";q=600;w=60'
        assert re.fullmatch(rf'"caller";r={remaining_count};t=\d+', answer.headers["ratelimit"])
    assert "ratelimit" not in (await world.ask("GET", "/health")).headers


async def test_more_than_the_allowance_is_refused_and_told_when_to_come_again(world: Installation) -> None:
    answers = [
        await world.ask("POST", "/platform/refresh", body={"refresh_token": "x"}, address="192.0.2.1")
        for _ in range(200)
    ]
    over = next(answer for answer in answers if answer.status == 429)
    error = check_refusal(over, 429, "QUOTA_RATE_LIMIT")
    wait = error["details"]["retry_after"]
    assert wait >= 1
    assert over.headers["retry-after"] == over.headers["x-ratelimit-reset"] == str(wait)
    assert over.headers["x-ratelimit-remaining"] == "0"
    assert over.headers["x-ratelimit-limit"] == str(error["details"]["limit"])
    # Others are not held up by it.
    other = await world.ask("POST", "/platform/refresh", body={"refresh_token": "x"}, address="192.0.2.2")
    assert other.status == 401


# Hosts (threat: Host and Origin not checked, DNS rebinding)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "localhost.", "[::1]", "[::1]:8000"]
)
async def test_the_servers_own_names_are_answered(world: Installation, host: str) -> None:
    assert (await world.ask("GET", "/health", host=host)).status == 200


@pytest.mark.parametrize("path", ["/health", "/nothing", "/docs", "/mcp", "/metrics", "/v1/app_000000/kv/a"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evillocalhost", "a.b.localhost",
    ".localhost", "169.254.169.254",
     "0.0.0.1", "", ":8000", "[::2]", "2130706433", "127.1", "localhost@evil.example", "localhost:80@evil.example",
     "localhost:x", "[::1].evil.example", "[::1", "localhost/", "evil.example\t",
     "localhost ", "\xff"],
)  # fmt: skip
async def test_a_foreign_host_is_refused_at_every_path(world: Installation, host: str, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        check_refusal(await world.ask(method, path, world.owner, host=host), 421, "HOST_REFUSED")


async def test_a_websocket_from_a_foreign_host_is_closed_before_it_opens(world: Installation) -> None:
    messages: list[dict[str, Any]] = []
    incoming = iter([{"type": "websocket.connect"}])

    async def receive() -> dict[str, Any]:
        return next(incoming)

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    scope = {
        "type": "websocket",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(b"host", b"evil.example")],
    }
    await world.server(scope, receive, send)
    assert [(message["type"], message["code"]) for message in messages] == [("websocket.close", 1008)]


# An app's own host


async def test_an_apps_own_host_needs_no_app_id_in_the_path(world: Installation) -> None:
    app = await world.create_app()
    host = f"{app.subdomain}.localhost:8000"
    assert (await world.ask("PUT", "/kv/a", world.owner, {"value": 1}, host=host)).status == 204
    assert (await world.ask("GET", "/kv/a", world.owner, host=host)).json == {"value": 1}
    assert (await world.ask("GET", "/kv/a/ttl", world.owner, host=host.upper())).status == 200
    assert (await world.ask("GET", "/kv/a%2Fttl", world.owner, host=host)).json["error"] == "not_found"
    assert app.id in (await world.ask("GET", "/config", world.owner, host=host)).content.decode()
    assert (await world.ask("GET", app.kv + "/a", world.owner)).json == {"value": 1}
    # What has an address of its own on the platform has it here too.
    assert (await world.ask("GET", app.kv + "/a", world.owner, host=host)).json == {"value": 1}
    assert (await world.ask("GET", "/health", host=host)).status == 200


async def test_an_apps_own_host_leads_to_nothing_beyond_the_app(world: Installation) -> None:
    app = await world.create_app()
    host = f"{app.subdomain}.localhost"
    for path in ("/init", "/apps", "/platform/me", "/api-keys", "/../apps", "/..%2Fapps", "//apps", "/"):
        answer = await world.ask("GET", path, world.owner, host=host)
        assert answer.status == 404, path


@pytest.mark.parametrize("subdomain", ["nosuchapp", "x" * 63, "-", "a_b"])
async def test_an_unknown_subdomain_is_no_app(world: Installation, subdomain: str) -> None:
    for path in ("/kv/a", "/health", "/"):
        check_refusal(await world.ask("GET", path, world.owner, host=f"{subdomain}.localhost"), 404, "APP_NOT_FOUND")


# Web origins


PREFLIGHT = {"access-control-request-method": "PUT", "access-control-request-headers": "authorization"}
CORS = "access-control-allow-origin"


async def set_origins(world: Installation, app: App, *origins: str) -> None:
    body = {"allowed_origins": list(origins)}
    assert (await world.ask("PATCH", f"/v1/{app.id}/config/cors", world.owner, body)).status == 200


async def test_a_page_of_an_allowed_origin_may_call_and_is_told_so(world: Installation) -> None:
    app = await world.create_app()
    origin = "https://shop.example.com"
    await set_origins(world, app, origin, "http://localhost:3000")
    preflight = await world.ask("OPTIONS", app.kv + "/a", {"origin": origin, **PREFLIGHT})
    assert (preflight.status, preflight.content) == (204, b"")
    assert preflight.headers[CORS] == origin
    assert preflight.headers["access-control-allow-credentials"] == "true"
    assert preflight.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
    allowed_names = {name.strip().lower() for name in preflight.headers["access-control-allow-headers"].split(",")}
    assert {"content-type", "authorization", "x-organization-id", "x-platform-as-user", "apikey"} <= allowed_names
    for method, path, status in [
        ("GET", "/none", 404),
        ("GET", "/_stats", 200),
        ("PATCH", "/a", 405),
        ("PUT", "/_a", 400),
    ]:
        answer = await world.ask(
            method, app.kv + path, world.owner | {"origin": origin}, {"value": 1} if method == "PUT" else None
        )
        assert answer.status == status
        assert (answer.headers[CORS], answer.headers["vary"]) == (origin, "Origin")
        assert [name for name, _ in answer.pairs].count(CORS) == 1
        assert "access-control-allow-methods" not in answer.headers


async def test_a_page_of_an_allowed_origin_may_send_every_header_that_its_client_asks_for(world: Installation) -> None:
    app = await world.create_app()
    origin = "https://shop.example.com"
    await set_origins(world, app, origin)
    header_names = ["x-stainless-lang", "anthropic-version", "x-api-key", "openai-organization", "user-agent"]
    header_names += ["prefer", "accept-profile", "content-profile", "x-platform-as-role", "x-client-info", "range"]
    preflight_headers = {
        **PREFLIGHT,
        "access-control-request-headers": ",".join([*header_names, "no\\name", "x" * 200]),
    }
    for path in ("chat/completions", "data/todos", "todos/7"):
        preflight = await world.ask("OPTIONS", f"/v1/{app.id}/{path}", {"origin": origin, **preflight_headers})
        allowed_names = [name.strip().lower() for name in preflight.headers["access-control-allow-headers"].split(",")]
        assert set(header_names) <= set(allowed_names)
        assert not {"no\\name", "x" * 200} & set(allowed_names)
        other = {"origin": "https://evil.example.com", **preflight_headers}
        stranger = await world.ask("OPTIONS", f"/v1/{app.id}/{path}", other)
        assert (stranger.status, stranger.headers.get(CORS)) == (403, None)
    many = {**PREFLIGHT, "access-control-request-headers": ",".join(f"x-{number}" for number in range(20_000))}
    preflight = await world.ask("OPTIONS", f"/v1/{app.id}/todos", {"origin": origin, **many})
    assert len(preflight.headers["access-control-allow-headers"]) < 10_000


async def test_a_page_may_read_what_the_headers_of_an_answer_say(world: Installation) -> None:
    app = await world.create_app()
    origin = "https://shop.example.com"
    await set_origins(world, app, origin)
    answer = await world.ask("GET", f"/v1/{app.id}/none", world.owner | {"origin": origin})
    exposed_names = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert {
        "content-range", "location", "preference-applied", "retry-after", "x-action-id", "x-total-count", "x-request-id"
    } <= exposed_names  # fmt: skip


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://shop.example.com", "https://shop.example.com:444",
    "https://shop.example.com.evil.example",
     "https://evil.example/https://shop.example.com", "null", "", "*", "https://", "file://",
     "https://evil.example://localhost",
     "https://localhost.evil.example", "https://localhost@evil.example", "https://evil.example#.localhost",
     "https://evil.example/.localhost",
     "https://evil.example?.localhost", "\xff"],
)  # fmt: skip
async def test_a_page_of_any_other_origin_is_refused(world: Installation, app: App, origin: str) -> None:
    await set_origins(world, app, "https://shop.example.com")
    await world.put(app, "a")
    for method, path, headers in [
        ("GET", app.kv + "/a", world.owner),
        ("PUT", app.kv + "/a", world.owner),
        ("OPTIONS", app.kv + "/a", PREFLIGHT),
        ("GET", f"/v1/{app.id}/config", world.owner),
        ("GET", "/apps", world.owner),
        ("POST", "/init", world.owner),
        ("GET", "/health", {}),
        ("POST", "/mcp", world.owner),
        ("GET", "/nothing", {}),
    ]:
        answer = await world.ask(method, path, {"origin": origin, **headers})
        assert answer.status == 403, (method, path)
        assert CORS not in answer.headers
    assert (await world.ask("GET", app.kv + "/a", world.owner)).json == {"value": 1}


async def test_one_apps_origin_is_foreign_to_another_and_to_the_platform(world: Installation) -> None:
    app, other = await world.create_app(), await world.create_app()
    await set_origins(world, app, "https://only.example.com")
    headers = world.owner | {"origin": "https://only.example.com"}
    assert (await world.ask("GET", app.kv + "/_stats", headers)).status == 200
    assert (await world.ask("GET", other.kv + "/_stats", headers)).status == 403
    assert (await world.ask("GET", "/v1/app_nosuchapp00/kv/a", headers)).status == 403
    check_refusal(await world.ask("GET", "/apps", headers), 403, "AUTH_ORIGIN_REFUSED")


async def test_a_page_below_the_platforms_domain_is_of_its_own_app_only(world: Installation) -> None:
    app, other = await world.create_app(), await world.create_app()
    headers = world.owner | {"origin": f"http://{app.subdomain}.localhost:8000"}
    assert (await world.ask("GET", app.kv + "/_stats", headers)).status == 200
    assert (await world.ask("GET", other.kv + "/_stats", headers)).status == 403
    check_refusal(await world.ask("GET", "/apps", headers), 403, "AUTH_ORIGIN_REFUSED")


async def test_pages_of_the_platform_always_pass(world: Installation, app: App) -> None:
    for origin in (
        "http://127.0.0.1:8000",
        "http://localhost:8000",
        "HTTP://LOCALHOST",
    ):
        answer = await world.ask("GET", "/apps", world.owner | {"origin": origin})
        assert (answer.status, answer.headers[CORS]) == (200, origin)
        assert (await world.ask("GET", app.kv + "/_stats", world.owner | {"origin": origin})).status == 200


async def test_a_public_installation_does_not_take_pages_of_loopback_for_its_own(tmp_path: Path) -> None:
    async with open_installation(tmp_path, base_url="https://baobab.example", allowed_hosts="other.example") as public:
        for origin in ("https://baobab.example", "https://other.example"):
            answer = await public.ask("GET", "/apps", public.owner | {"origin": origin}, host="baobab.example")
            assert (answer.status, answer.headers[CORS]) == (200, origin)
        strangers = ("http://localhost:3000", "http://127.0.0.1", "http://[::1]", "https://shop.other.example")
        for origin in (*strangers, "https://shop.baobab.example"):
            answer = await public.ask("GET", "/apps", public.owner | {"origin": origin}, host="baobab.example")
            check_refusal(answer, 403, "AUTH_ORIGIN_REFUSED")
        # The operator still reaches it from its own machine, by no page.
        assert (await public.ask("GET", "/apps", public.owner, host="localhost:8000")).status == 200


async def test_a_request_from_no_page_needs_no_origin(world: Installation, app: App) -> None:
    answer = await world.ask("GET", app.kv + "/_stats", world.owner)
    assert answer.status == 200
    assert CORS not in answer.headers


# Whom a request speaks for


async def test_an_organisation_is_chosen_by_header_among_the_callers_own(world: Installation) -> None:
    me = (await world.ask("GET", "/platform/me", world.owner)).json
    account, home = me["user"]["id"], me["organizations"][0]["id"]
    token = await world.create_token(account, home)
    team = (await world.ask("POST", "/v1/organizations", token, {"name": "Team"})).json["id"]
    other = await world.create_account("other@example.com")
    foreign = (await world.ask("GET", "/platform/me", other)).json["organizations"][0]["id"]
    app = await world.create_app(token | {"x-organization-id": team})
    apps = (await world.ask("GET", "/apps", token | {"x-organization-id": team})).json["apps"]
    assert [row["id"] for row in apps] == [app.id]
    assert app.id not in [row["id"] for row in (await world.ask("GET", "/apps", token)).json["apps"]]
    for organization_id in (foreign, "nothing", "", "%00", "\xff", "x" * 5000, f"{team}, {home}"):
        check_refusal(
            await world.ask("GET", "/apps", token | {"x-organization-id": organization_id}),
            403,
            "AUTH_INSUFFICIENT_PERMISSIONS",
        )
    # A key stays in its organisation, but may name it.
    assert (await world.ask("GET", "/apps", world.owner | {"x-organization-id": home})).status == 200
    check_refusal(
        await world.ask("GET", "/apps", world.owner | {"x-organization-id": team}), 403, "AUTH_INSUFFICIENT_PERMISSIONS"
    )
    check_refusal(await world.ask("GET", "/apps", {"x-organization-id": team}), 401, "AUTH_REQUIRED")


@pytest.mark.parametrize(
    "user", ["", "ada", "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e1", "../x", "\xff", "0b8f1d6e5c8e4f0e9a543f0d8a7c2e11"]
)
async def test_acting_for_a_user_needs_the_users_id(world: Installation, app: App, user: str) -> None:
    key = await world.create_key(world.owner, key_scope="app", target_app_id=app.id)
    answer = await world.ask("GET", app.kv + "/a", key | {"x-platform-as-user": user})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "bearer  ", "Basic YTpi", "Token x", "Bearer a b", "Bearer \xff",
    "Bearer " + "x" * 9000, "Bearer a.b.c",
     "Bearer ..", "Bearer a.b.c.d", "Bearer bb_sk_", "BearerX x", "Bearer %00"],
)  # fmt: skip
async def test_a_credential_that_does_not_count_is_401_never_anonymous(
    world: Installation, app: App, authorization: str
) -> None:
    await world.expose(app, ("public", "public", "deny"))
    await world.put(app, "public")
    assert (await world.ask("GET", app.kv + "/public")).status == 200
    for path in (app.kv + "/public", "/apps"):
        answer = await world.ask("GET", path, {"authorization": authorization})
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_the_scheme_is_read_in_any_case(world: Installation) -> None:
    token = world.owner["authorization"].removeprefix("Bearer ")
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert (await world.ask("GET", "/apps", {"authorization": f"{scheme} {token}"})).status == 200


# Bodies


async def test_an_empty_body_is_an_empty_object(world: Installation, app: App) -> None:
    for content in (b"", b"{}", b" {} \n"):
        assert (await world.ask("POST", app.kv + "/n/incr", world.owner, content=content)).status == 200
    error = check_refusal(await world.ask("POST", "/init", world.owner, content=b""), 400, "VALIDATION_MISSING_FIELD")
    assert "name" in error["message"]


async def test_a_body_over_the_limit_is_refused_before_it_is_read(world: Installation, app: App) -> None:
    error = check_refusal(
        await world.ask("POST", "/init", world.owner, content=b" " * (2**20 + 1)), 413, "REQUEST_TOO_LARGE"
    )
    assert error["details"] == {"max_bytes": 2**20}
    answer = await world.ask("POST", "/init", world.owner | {"content-length": str(2**40)}, content=b"{}")
    check_refusal(answer, 413, "REQUEST_TOO_LARGE")
    assert answer.headers["connection"] == "close"
    check_refusal(await world.ask("POST", "/init", world.owner, content=b" " * 2**20), 400, "VALIDATION_INVALID_SCHEMA")


async def test_a_large_body_of_nobody_is_refused_without_being_looked_at(world: Installation, app: App) -> None:
    for path in ("/v1/chat/completions", f"/v1/{app.id}/embeddings"):
        large = {"content-length": str(2**21)}
        answer = await world.ask("POST", path, large, content=b"{")
        assert (answer.status, answer.json["error"]["code"]) == (401, "missing_credentials")
        answer = await world.ask("POST", path, world.owner | large, content=b"{")
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")


async def test_large_bodies_are_answered_as_small_ones_are(world: Installation, app: App) -> None:
    padding = b" " * 2**20
    # Some of its operations may be for everybody, but not with a large body.
    batch = b'{"ops": []}' + padding
    assert (await world.ask("POST", app.kv + "/_batch", content=batch)).status == 413
    answer = await world.ask("POST", app.kv + "/_batch", world.owner, content=batch)
    assert (answer.status, answer.json) == (200, {"results": []})
    body = b'{"messages": [{"role": "user", "content": "Hello!"}]}' + padding
    answers = await asyncio.gather(
        *(world.ask("POST", "/v1/chat/completions", world.owner, content=body) for _ in range(4)),
        world.ask("POST", "/v1/chat/completions", world.owner, content=body + b"x"),
    )
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 400]


async def test_a_field_given_twice_counts_as_it_was_given_last(world: Installation, app: App) -> None:
    twice = b'{"by": "nonsense", "by": 5}'
    assert (await world.ask("POST", app.kv + "/twice/incr", world.owner, content=twice)).json == {"value": 5}


async def test_the_path_names_the_app_whatever_the_body_says(world: Installation, app: App) -> None:
    other = await world.create_app()
    for body in ({"value": 1, "app_id": other.id}, {"value": 1, "key": "b"}):
        answer = await world.ask("PUT", app.kv + "/a", world.owner, body)
        assert (answer.status, answer.json["error"]) == (400, "bad_request")
    answer = await world.ask("GET", f"{app.kv}/a?app_id={other.id}", world.owner)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert (await world.ask("GET", other.kv + "/_stats", world.owner)).json["keys_total"] == 0


async def test_an_unknown_field_is_named_and_so_are_those_that_are_known(world: Installation) -> None:
    error = check_refusal(
        await world.ask("POST", "/init", world.owner, {"name": "x", "nmae": "y"}), 400, "VALIDATION_INVALID_SCHEMA"
    )
    assert "nmae" in error["message"]
    assert "`name`" in error["remediation"]


async def test_no_answer_repeats_a_credential_or_a_value(world: Installation, app: App) -> None:
    secret = "bb_sk_" + "s3cretpart" * 4
    for answer in [
        await world.ask("GET", "/apps", bearer_headers(secret)),
        await world.ask("POST", "/init", world.owner, {"name": {"password": secret}}),
        await world.ask("POST", "/init", world.owner, content=b'{"name": "' + secret.encode()),
        await world.ask("PUT", app.kv + "/a", world.owner, {"value": 1, "ttl": secret}),
        await world.ask("GET", f"{app.kv}/_scan?limit={secret}", world.owner),
    ]:
        assert answer.status in {400, 401}
        assert "s3cretpart" not in answer.content.decode()


async def test_answers_are_json_that_needs_no_extension(world: Installation, app: App) -> None:
    await world.put(app, "text", "\u2028\ud83d\ude00</script>")
    answer = await world.ask("GET", app.kv + "/text", world.owner)
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert json.loads(answer.content.decode()) == {"value": "\u2028\U0001f600</script>"}


async def test_a_database_that_does_not_answer_is_503_at_every_step(tmp_path: Path) -> None:
    async with open_installation(tmp_path) as installation:
        app = await installation.create_app()
        async with installation.application.services.database.writing() as connection:
            for table in ("api_keys", "kv_rules"):
                await connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {table}_gone")
        for path, headers in [
            ("/apps", bearer_headers("bb_sk_unknown")),
            (app.kv + "/a", bearer_headers("bb_sk_unknown")),
            (app.kv + "/a", {}),
        ]:
            answer = await installation.ask("GET", path, headers)
            assert (answer.status, answer.headers["retry-after"]) == (503, "2")
            assert "gone" not in answer.content.decode()
            assert "kv_rules" not in answer.content.decode()
        async with installation.application.services.database.writing() as connection:
            for table in ("api_keys", "kv_rules"):
                await connection.exec_driver_sql(f"ALTER TABLE {table}_gone RENAME TO {table}")
        assert (await installation.ask("GET", app.kv + "/a")).status == 401


@pytest.mark.parametrize(
    ("path", "logged_path"),
    [
        (f"/v1/invitations/inv_{'S' * 40}/accept", "/v1/invitations/inv_(hidden)/accept"),
        ("/v1/app_1/people/email-callback/7/s3cret", "/v1/app_1/people/email-callback/7/(hidden)"),
    ],
)
async def test_the_access_log_keeps_no_token_that_stands_in_a_path(
    world: Installation, caplog: pytest.LogCaptureFixture, path: str, logged_path: str
) -> None:
    rest_app = world.server.rest_app
    assert rest_app is not None
    rest_app._sample = 1.0
    try:
        with caplog.at_level("INFO", logger="baobab.access"):
            await world.ask("POST", path, world.owner)
    finally:
        rest_app._sample = 0.0
    [record] = [record for record in caplog.records if record.name == "baobab.access"]
    assert record.path == logged_path  # type: ignore[attr-defined]
