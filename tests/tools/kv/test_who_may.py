"""The whole matrix: every kind of caller, and what the store answers to each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.clock import FixedClock
from tests.http.installation import App, Installation, bearer_headers

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA, BOB = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
EVE = "eeeeeeee-0000-4000-8000-000000000003"

OK = {"public": 200, "authed": 200, "ada's": 200, "editors'": 200, "denied": 200, "unlisted": 200,
      "write authed": 204, "write ada's": 204, "write denied": 204, "batch": 200, "admin": 200,
      "recent": 200}  # fmt: skip
FORBIDDEN, SIGN_IN = (403, "forbidden"), (401, "unauthorized")
NOBODY = (
    OK
    | dict.fromkeys(
        ["authed", "ada's", "editors'", "denied", "unlisted", "write authed", "write ada's", "write denied", "recent"],
        SIGN_IN,
    )
    | {"admin": FORBIDDEN}
)
SOMEBODY = OK | dict.fromkeys(
    ["ada's", "editors'", "denied", "unlisted", "write ada's", "write denied", "admin"], FORBIDDEN
)
HERSELF = SOMEBODY | {"ada's": 200, "write ada's": 204}


def refuse_all(status: int, error: str, code: str) -> dict[str, tuple[int, str, str]]:
    return dict.fromkeys(OK, (status, error, code))


FOREIGN = refuse_all(403, "auth_failed", "AUTH_INSUFFICIENT_PERMISSIONS")
BAD_KEY = refuse_all(401, "auth_failed", "AUTH_INVALID_API_KEY")
BAD_TOKEN = refuse_all(401, "invalid_jwt", "AUTH_INVALID_TOKEN")
BAD_USER = refuse_all(401, "invalid_jwt", "AUTH_INVALID_END_USER_JWT")
EXPIRED = refuse_all(401, "invalid_jwt", "AUTH_END_USER_JWT_EXPIRED")
NO_IMPERSONATION = refuse_all(403, "auth_failed", "AUTH_IMPERSONATION_FORBIDDEN")

EXPECTED: dict[str, Mapping[str, object]] = {
    "anonymous": NOBODY,
    "anon key": NOBODY,
    "anon key of another app": NOBODY,
    "anon key as bearer": NOBODY,
    "garbage anon key as bearer": BAD_KEY,
    "garbage anon key": BAD_KEY,
    "user ada": HERSELF,
    "user bob": SOMEBODY,
    "an editor": SOMEBODY | {"editors'": 200},
    "user of another app": BAD_USER,
    "owner's token": OK,
    "owner's account key": OK,
    "a member's token": OK,
    "app key": OK,
    "function key": OK,
    "app key of another app": FOREIGN,
    "function key of another app": FOREIGN,
    "another account's token": FOREIGN,
    "another account's key": FOREIGN,
    "gateway key": FOREIGN,
    "substrate key": FOREIGN,
    "garbage key": BAD_KEY,
    "revoked key": BAD_KEY,
    "garbage token": BAD_TOKEN,
    "expired user token": EXPIRED,
    "expired account token": BAD_TOKEN,
    "another scheme": refuse_all(401, "unauthorized", "AUTH_REQUIRED"),
    "no token after Bearer": BAD_TOKEN,
    "app key for ada": HERSELF,
    "function key for bob": SOMEBODY,
    "app key of another app for ada": BAD_USER,
    "account key for ada": NO_IMPERSONATION,
    "ada for bob": NO_IMPERSONATION,
    "nobody for ada": NO_IMPERSONATION,
    "app key for somebody without an id": refuse_all(400, "bad_request", ""),
}


@dataclass
class Scene:
    app: App
    callers: dict[str, dict[str, str]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(world: Installation, clock: FixedClock) -> Scene:
    app, other = await world.create_app(), await world.create_app()
    await world.expose(
        app,
        ("public:*", "public", "deny"),
        ("authed:*", "authed", "authed"),
        ("user:{user.id}:*", "owner", "owner"),
        ("role:{user.role}:*", "owner", "deny"),
        ("denied:*", "deny", "deny"),
    )
    for key in ("public:a", "authed:a", f"user:{ADA}:a", "role:editor:a", "denied:a", "unlisted"):
        await world.put(app, key)

    async def function_key(of: App) -> dict[str, str]:
        return bearer_headers((await world.ask("POST", f"{of.kv}/_rotate_key", world.owner)).json["function_key"])

    me = (await world.ask("GET", "/platform/me", world.owner)).json
    account, home = me["user"]["id"], me["organizations"][0]["id"]
    answer = await world.ask(
        "POST", f"/v1/organizations/{home}/invitations", world.owner, {"email": "member@example.com", "role": "member"}
    )
    member = await world.create_account("member@example.com")
    joined_answer = await world.ask("POST", f"/v1/invitations/{answer.json['token']}/accept", member)
    assert joined_answer.status == 200, joined_answer.content
    stranger = await world.create_account("stranger@example.com")
    keys = {
        name: await world.create_key(world.owner, key_scope="app", target_app_id=of.id)
        for name, of in (("app", app), ("other", other), ("revoked", app))
    }
    for listed_key in (await world.ask("GET", "/api-keys", world.owner)).json["keys"]:
        if f" {listed_key['prefix']}" in keys["revoked"]["authorization"]:
            assert (await world.ask("DELETE", f"/api-keys/{listed_key['id']}", world.owner)).status == 200
    for_ada, for_bob = ({"x-platform-as-user": user} for user in (ADA, BOB))
    functions = await function_key(app)
    callers = {
        "anonymous": {},
        "anon key": {"apikey": app.anon_key},
        "anon key of another app": {"apikey": other.anon_key},
        "garbage anon key": {"apikey": "bb_anon_garbage"},
        "anon key as bearer": bearer_headers(app.anon_key),
        "garbage anon key as bearer": bearer_headers("bb_anon_garbage"),
        "user ada": await world.user_headers(app, ADA),
        "user bob": await world.user_headers(app, BOB),
        "an editor": await world.user_headers(app, EVE, role="editor"),
        "user of another app": await world.user_headers(other, ADA),
        "owner's token": await world.create_token(account, home),
        "owner's account key": world.owner,
        "a member's token": member,
        "app key": keys["app"],
        "function key": functions,
        "app key of another app": keys["other"],
        "function key of another app": await function_key(other),
        "another account's token": stranger,
        "another account's key": await world.create_key(stranger),
        "gateway key": await world.create_key(world.owner, scopes=["ai:gateway"]),
        "substrate key": await world.create_key(world.owner, scope="substrate"),
        "garbage key": bearer_headers("bb_sk_" + "x" * 40),
        "revoked key": keys["revoked"],
        "garbage token": bearer_headers("a.b.c"),
        "expired user token": await world.user_headers(app, ADA, lifetime=-1),
        "expired account token": await world.create_token(account, home, lifetime=-1),
        "another scheme": {"authorization": "Basic YTpi"},
        "no token after Bearer": {"authorization": "Bearer "},
        "app key for ada": keys["app"] | for_ada,
        "function key for bob": functions | for_bob,
        "app key of another app for ada": keys["other"] | for_ada,
        "account key for ada": world.owner | for_ada,
        "ada for bob": await world.user_headers(app, ADA) | for_bob,
        "nobody for ada": for_ada,
        "app key for somebody without an id": keys["app"] | {"x-platform-as-user": "ada"},
    }
    return Scene(app, callers)


PUT = {"value": 1}
ASKED: dict[str, tuple[str, str, Any]] = {
    "public": ("GET", "/public:a", None),
    "authed": ("GET", "/authed:a", None),
    "ada's": ("GET", f"/user:{ADA}:a", None),
    "editors'": ("GET", "/role:editor:a", None),
    "denied": ("GET", "/denied:a", None),
    "unlisted": ("GET", "/unlisted", None),
    "write authed": ("PUT", "/authed:b", PUT),
    "write ada's": ("PUT", f"/user:{ADA}:b", PUT),
    "write denied": ("PUT", "/denied:b", PUT),
    "batch": ("POST", "/_batch", {"ops": []}),
    "admin": ("GET", "/_stats", None),
    "recent": ("GET", "/_audit_recent", None),
}


@pytest.mark.parametrize("caller", EXPECTED)
async def test_each_caller_gets_what_the_rules_give(world: Installation, scene: Scene, caller: str) -> None:
    outcomes: dict[str, object] = {}
    for what, (method, path, body) in ASKED.items():
        answer = await world.ask(method, scene.app.kv + path, scene.callers[caller], body)
        expected_outcome = EXPECTED[caller][what]
        if isinstance(expected_outcome, int):
            outcomes[what] = answer.status
            continue
        outcomes[what] = (answer.status, answer.json["error"], answer.json.get("code", ""))[: len(expected_outcome)]  # type: ignore[arg-type]
        assert answer.json["remediation"]
        assert ("www-authenticate" in answer.headers) == (answer.status == 401)
    assert outcomes == EXPECTED[caller]


async def test_no_caller_is_left_out(scene: Scene) -> None:
    assert set(scene.callers) == set(EXPECTED)


@pytest.mark.parametrize(
    "caller",
    [
        "anonymous",
        "anon key",
        "user ada",
        "app key for ada",
        "gateway key",
        "another account's key",
        "user of another app",
    ],
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/_scan", None),
        ("GET", "/_stats", None),
        ("POST", "/_flush", {"confirm": True, "include_config": True}),
        ("GET", "/_expose", None),
        ("PUT", "/_expose", {"rules": []}),
        ("PUT", "/_expose/**", {"read": "public", "write": "public"}),
        ("DELETE", "/_expose/public:*", None),
        ("POST", "/_rotate_key", None),
    ],
)
async def test_only_those_who_run_the_app_administer_it(
    world: Installation, scene: Scene, caller: str, method: str, path: str, body: object
) -> None:
    before = (await world.ask("GET", f"{scene.app.kv}/_expose", world.owner)).json
    answer = await world.ask(method, scene.app.kv + path, scene.callers[caller], body)
    error = EXPECTED[caller]["admin"][1]  # type: ignore[index]
    assert answer.json["error"] == error
    assert answer.status == (401 if caller == "user of another app" else 403)
    assert (await world.ask("GET", f"{scene.app.kv}/_expose", world.owner)).json == before
    assert (await world.ask("GET", f"{scene.app.kv}/unlisted", world.owner)).status == 200
    assert (await world.ask("GET", f"{scene.app.kv}/_stats", scene.callers["function key"])).status == 200


async def test_what_a_key_does_for_a_user_is_written_down_as_the_keys(world: Installation, scene: Scene) -> None:
    caller = scene.callers["app key for ada"]
    assert (await world.ask("POST", f"{scene.app.kv}/user:{ADA}:noted/incr", caller)).status == 200
    rows = (await world.ask("GET", f"/v1/{scene.app.id}/audit-logs?event_type=kv.write", world.owner)).json["logs"]
    assert {"api_key"} == {row["actor_type"] for row in rows if row["event_data"]["tool"] == "kv_incr"}


async def test_a_user_whose_id_holds_the_separator_owns_nothing(world: Installation, scene: Scene) -> None:
    user = await world.user_headers(scene.app, "ada:a")
    answer = await world.ask("GET", f"{scene.app.kv}/user:ada:a", user)
    assert (answer.status, answer.json["error"]) == (403, "forbidden")


async def test_an_app_that_requires_sign_in_answers_nobody_else(world: Installation) -> None:
    app = await world.create_app()
    await world.expose(app, ("public:*", "public", "public"))
    user = await world.user_headers(app, ADA)
    assert (await world.ask("PUT", f"{app.kv}/public:a", {}, PUT)).status == 204
    assert (await world.ask("POST", f"/v1/{app.id}/secure", world.owner, {})).status == 200
    agent: tuple[str, str, Any] = ("POST", f"/v1/{app.id}/public/agents/helper/runs", {"input": {}})
    for anonymous in ({}, {"apikey": app.anon_key}, bearer_headers(app.anon_key)):
        requests = [
            *ASKED.values(),
            ("PUT", "/public:b", PUT),
            ("POST", "/_batch", {"ops": [{"op": "get", "key": "public:a"}]}),
        ]
        for method, path, body in requests:
            refusal = await world.ask(method, app.kv + path, anonymous, body)
            assert refusal.status == (403 if path == "/_stats" else 401), path
        method, path, body = agent
        assert (await world.ask(method, path, anonymous, body)).status == 401
    for headers in (user, world.owner):
        assert (await world.ask("GET", f"{app.kv}/public:a", headers)).json == {"value": 1}
    answer = await world.ask("PATCH", f"/v1/{app.id}/config/access-mode", world.owner, {"access_mode": "public"})
    assert answer.status == 200
    assert (await world.ask("GET", f"{app.kv}/public:a")).json == {"value": 1}


async def test_the_function_key_opens_each_operation_of_a_batch(world: Installation, scene: Scene) -> None:
    ops = [{"op": "set", "key": "of:functions", "value": 1}, {"op": "get", "key": "of:functions"}]
    answer = await world.ask("POST", f"{scene.app.kv}/_batch", scene.callers["function key"], {"ops": ops})
    assert answer.json == {"results": [{"ok": True}, {"value": 1}]}
    for_bob = await world.ask("POST", f"{scene.app.kv}/_batch", scene.callers["function key for bob"], {"ops": ops})
    assert for_bob.json == {"results": [{"error": "KV_FORBIDDEN"}] * 2}
