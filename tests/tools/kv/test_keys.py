"""Keys in paths: what is a key, what is an action, what is an admin path."""

from urllib.parse import quote

import pytest

from tests.http.installation import App, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACTIONS = {
    "ttl": ("GET", None),
    "exists": ("GET", None),
    "incr": ("POST", {}),
    "decr": ("POST", {}),
    "setnx": ("POST", {"value": 1}),
    "cas": ("POST", {"expected": None, "next": 1}),
    "expire": ("POST", {"ttl": 5}),
}


@pytest.mark.parametrize(
    "key",
    [
        "a", "a/b/c", "user:42:cart", "a b", "~!@#$^&()-=+[]{}|;'\",.<>?", "100%", "%41", "%2F", "a%2Fb", "a\\b", "...",
        ".a", "a..b", "a/_b", "a_", "-", "k" * 512, "*", "{user.id}", "a?b=c", "a#b", "v1", "kv", "ttl", "incr",
        "expire",
    ],
)  # fmt: skip
async def test_printable_ascii_is_a_key(world: Installation, app: App, key: str) -> None:
    target = f"{app.kv}/{quote(key, safe='/:')}"
    assert (await world.ask("PUT", target, world.owner, {"value": key})).status == 204
    assert (await world.ask("GET", target, world.owner)).json == {"value": key}
    answer = await world.ask("GET", f"{app.kv}/_scan?prefix={quote(key)}", world.owner)
    assert key in answer.json["keys"]
    assert (await world.ask("DELETE", target, world.owner)).json == {"deleted": 1}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/", "invalid_key"),
        ("//", "invalid_key"),
        ("/a/", "invalid_key"),
        ("/a//b", "invalid_key"),
        ("//a", "invalid_key"),
        ("/%2F", "invalid_key"),
        ("/a%2F%2Fb", "invalid_key"),
        ("/_a", "key_invalid"),
        ("/_", "key_invalid"),
        ("/%5Fa", "key_invalid"),
        ("/_scan/more", "key_invalid"),
        ("/_unknown/more", "key_invalid"),
        ("/%00", "key_invalid"),
        ("/a%0Ab", "key_invalid"),
        ("/a%7F", "key_invalid"),
        ("/%C3%A9", "key_invalid"),
        ("/..", "key_invalid"),
        ("/.", "key_invalid"),
        ("/a/../b", "key_invalid"),
        ("/a%2F..%2Fb", "key_invalid"),
        ("/%2E%2E", "key_invalid"),
        ("/" + "k" * 513, "key_invalid"),
        ("/%", "bad_request"),
        ("/%2", "bad_request"),
        ("/%zz", "bad_request"),
        ("/%FF", "bad_request"),
        ("/%C3", "bad_request"),
        ("/%ED%A0%80", "bad_request"),
        ("/\xe9", "bad_request"),
    ],
)
async def test_what_is_no_key_is_refused_with_its_code(world: Installation, app: App, path: str, code: str) -> None:
    before = (await world.ask("GET", f"{app.kv}/_stats", world.owner)).json["keys_total"]
    for method, body in (("GET", None), ("PUT", {"value": 1}), ("DELETE", None)):
        answer = await world.ask(method, app.kv + path, world.owner, body)
        assert (answer.status, answer.json["error"]) == (400, code), (method, answer.content)
        assert answer.json["message"]
        assert answer.json["remediation"]
    assert (await world.ask("GET", f"{app.kv}/_stats", world.owner)).json["keys_total"] == before


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_encoded_separator_makes_an_action_part_of_the_key(world: Installation, app: App, action: str) -> None:
    await world.put(app, "a", 1)
    for target in (f"{app.kv}/a%2F{action}", f"{app.kv}/a%2f{action}"):
        assert (await world.ask("PUT", target, world.owner, {"value": action})).status == 204
        assert (await world.ask("GET", target, world.owner)).json == {"value": action}
        assert (await world.ask("GET", f"{target}/exists", world.owner)).json == {"exists": True}
    assert (await world.ask("GET", f"{app.kv}/a", world.owner)).json == {"value": 1}
    assert (await world.ask("DELETE", f"{app.kv}/a%2F{action}", world.owner)).json == {"deleted": 1}
    await world.ask("DELETE", f"{app.kv}/a", world.owner)


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_takes_its_own_method_only(world: Installation, app: App, action: str) -> None:
    allowed_method, body = ACTIONS[action]
    allow_header = "GET, HEAD, OPTIONS" if allowed_method == "GET" else "OPTIONS, POST"
    for method in {"GET", "PUT", "POST", "DELETE", "PATCH"} - {allowed_method}:
        answer = await world.ask(method, f"{app.kv}/some/key/{action}", world.owner, body)
        assert (answer.status, answer.json["error"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allow_header


async def test_actions_work_on_keys_with_slashes(world: Installation, app: App) -> None:
    assert (await world.ask("POST", f"{app.kv}/a/b/incr", world.owner)).json == {"value": 1}
    assert (await world.ask("POST", f"{app.kv}/a%2Fb/incr", world.owner)).json == {"value": 2}
    assert (await world.ask("GET", f"{app.kv}/a/b/ttl", world.owner)).json["ttl"] == 30 * 86400
    # The last segment is the action; one before it belongs to the key.
    assert (await world.ask("POST", f"{app.kv}/a/ttl/incr", world.owner)).json == {"value": 1}
    assert (await world.ask("GET", f"{app.kv}/a%2Fttl", world.owner)).json == {"value": 1}
    await world.ask("POST", f"{app.kv}/_flush", world.owner, {"confirm": True})


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/key", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("/_scan", "GET, HEAD, OPTIONS"),
        ("/_stats", "GET, HEAD, OPTIONS"),
        ("/_flush", "OPTIONS, POST"),
        ("/_batch", "OPTIONS, POST"),
        ("/_expose", "GET, HEAD, OPTIONS, PUT"),
        ("/_expose/a", "DELETE, OPTIONS, PUT"),
        ("/_audit_recent", "GET, HEAD, OPTIONS"),
        ("/_rotate_key", "OPTIONS, POST"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_told_which_it_does(
    world: Installation, app: App, path: str, allow: str
) -> None:
    answer = await world.ask("PATCH", app.kv + path, world.owner, {})
    assert (answer.status, answer.json["error"], answer.headers["allow"]) == (405, "method_not_allowed", allow)
    options = await world.ask("OPTIONS", app.kv + path)
    assert (options.status, options.content, options.headers["allow"]) == (204, b"", allow)


@pytest.mark.parametrize("path", ["/key", "/key/ttl", "/key/exists", "/_stats"])
async def test_head_answers_as_get_does(world: Installation, app: App, path: str) -> None:
    await world.put(app, "key", "value")
    get = await world.ask("GET", app.kv + path, world.owner)
    head = await world.ask("HEAD", app.kv + path, world.owner)
    assert (head.status, head.headers["content-length"]) == (200, get.headers["content-length"])
    assert (await world.ask("HEAD", f"{app.kv}/none", world.owner)).status == 404
