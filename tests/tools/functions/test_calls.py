"""Functions are called over HTTP: by whom, what they get, and what becomes of what they answer."""

import asyncio
import json
from typing import Any

import pytest

from baobab.tools.core.errors import AppPaused
from tests.installation import get_asgi_app
from tests.tools.functions.conftest import HELLO, Workshop
from tests.users import mint_user_token

_ADA = "11111111-1111-4111-8111-111111111111"
_BEN = "22222222-2222-4222-8222-222222222222"
WHO = "export default (req, ctx) => Response.json({user: ctx.user, caller: ctx.caller})"
ECHO = """
export default async (req, ctx) => Response.json({
  method: req.method, url: req.url, headers: Object.fromEntries(req.headers), body: await req.text(),
  id: ctx.request.id,
}, {status: 201, headers: {"x-own": "yes"}})
"""


def http(**config: Any) -> list[dict[str, Any]]:
    return [{"type": "http", "config": config}]


async def make_key(workshop: Workshop, **settings: Any) -> dict[str, str]:
    body = {"name": "k", "key_scope": "app", "target_app_id": workshop.app, **settings}
    answer = await workshop.client.post("/api-keys", json=body, headers=workshop.owner)
    assert answer.status_code == 201, answer.text
    return {"authorization": f"Bearer {answer.json()['key']}"}


async def make_user(workshop: Workshop, user_id: str = _ADA) -> dict[str, str]:
    token = await mint_user_token(workshop.application, workshop.app, user_id)
    return {"authorization": f"Bearer {token}"}


async def test_a_trigger_says_who_may_call_and_the_function_sees_for_whom_it_runs(workshop: Workshop) -> None:
    for auth in ("required", "optional", "none"):
        await workshop.deploy(auth, WHO, triggers=http(auth=auth))
    user = await make_user(workshop)
    refusal = await workshop.call("required")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (401, "AUTH_REQUIRED")
    for name in ("optional", "none"):
        answer = (await workshop.call(name)).json()
        assert answer == {"user": None, "caller": {"type": "anonymous", "keyId": None, "scope": None, "userId": None}}
    for name in ("required", "optional", "none"):
        answer = (await workshop.call(name, headers=user)).json()
        assert (answer["user"], answer["caller"]["type"]) == ({"id": _ADA}, "end_user_jwt")
        answer = (await workshop.call(name, headers=workshop.owner)).json()
        assert (answer["user"], answer["caller"]["type"]) == (None, "service_key")


async def test_a_credential_that_is_not_valid_counts_as_none_where_none_is_needed(workshop: Workshop) -> None:
    await workshop.deploy("open", ECHO, triggers=http(auth="none"))
    await workshop.deploy("closed", ECHO)
    foreign = {"authorization": "Basic c2VuZGVyOnNlY3JldA=="}
    assert (await workshop.call("open", headers=foreign)).json()["headers"]["authorization"] == foreign["authorization"]
    wrong = {"authorization": "Bearer bb_sk_" + "x" * 40}
    assert (await workshop.call("open", headers=wrong)).status_code == 201
    refusal = await workshop.call("closed", headers=wrong)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (401, "AUTH_INVALID_API_KEY")


async def test_the_access_mode_of_the_app_does_not_matter(workshop: Workshop) -> None:
    await workshop.deploy("open", triggers=http(auth="none"))
    await workshop.request("PATCH", "/config/access-mode", json={"access_mode": "authenticated"})
    assert (await workshop.call("open")).status_code == 200


async def test_a_key_of_the_app_calls_for_a_user_unless_the_function_forbids_it(workshop: Workshop) -> None:
    await workshop.deploy("who", WHO)
    key = await make_key(workshop)
    answer = (await workshop.call("who", headers={**key, "x-platform-as-user": _BEN})).json()
    assert (answer["user"], answer["caller"]["type"], answer["caller"]["userId"]) == ({"id": _BEN}, "service_key", _BEN)
    refusal = await workshop.call("who", headers={**workshop.owner, "x-platform-as-user": _BEN})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_IMPERSONATION_FORBIDDEN")
    body = {"allow_service_key_impersonation": False}
    await workshop.request("PATCH", "/functions/who/settings", json=body)
    refusal = await workshop.call("who", headers={**key, "x-platform-as-user": _BEN})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_IMPERSONATION_DISABLED")
    assert (await workshop.call("who", headers=key)).json()["user"] is None


async def test_a_credential_of_another_app_is_refused(workshop: Workshop) -> None:
    await workshop.deploy("open", triggers=http(auth="none"))
    other_app = await workshop.create_app()
    token = await mint_user_token(workshop.application, other_app, _ADA)
    assert (await workshop.call("open", headers={"authorization": f"Bearer {token}"})).status_code == 403


async def test_a_request_passes_through_and_so_does_the_answer(workshop: Workshop) -> None:
    await workshop.deploy("echo", ECHO)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        headers = {**workshop.owner, "x-mine": "1", "cookie": "session=secret"}
        answer = await workshop.call("echo/a%2Fb/c?x=1&x=2", method, headers=headers, content=b"\x00\xffraw")
        assert (answer.status_code, answer.headers["x-own"]) == (201, "yes")
        request = answer.json()
        assert request["method"] == method
        assert request["url"].endswith(f"/v1/{workshop.app}/fn/echo/a%2Fb/c?x=1&x=2")
        assert request["headers"]["x-mine"] == "1"
        # Neither the key of the caller nor a cookie of the console is the function's business.
        assert not request["headers"].keys() & {"authorization", "cookie"}
        assert request["id"] == answer.headers["x-request-id"]
    assert (await workshop.call("echo", "GET", headers=workshop.owner)).json()["body"] == ""
    head = await workshop.call("echo", "HEAD", headers=workshop.owner)
    assert (head.status_code, head.content) == (201, b"")


async def test_a_user_token_is_passed_on(workshop: Workshop) -> None:
    await workshop.deploy("echo", ECHO)
    user = await make_user(workshop)
    assert (await workshop.call("echo", headers=user)).json()["headers"]["authorization"] == user["authorization"]


async def test_a_trigger_may_take_one_method_and_paths_below_one(workshop: Workshop) -> None:
    await workshop.deploy("form", HELLO, triggers=http(auth="none", method="POST", path="/submit"))
    assert (await workshop.call("form/submit/more")).status_code == 200
    assert (await workshop.call("form")).status_code == 404
    assert (await workshop.call("form/submitted")).status_code == 404
    refusal = await workshop.call("form/submit", "GET")
    assert (refusal.status_code, refusal.headers["allow"]) == (405, "POST")


async def test_answers_set_nothing_for_the_platforms_own_name_and_run_in_a_sandbox(workshop: Workshop) -> None:
    code = """
    export default () => new Response("<script>alert(1)</script>", {headers: {
      "content-type": "text/html", "set-cookie": "session=stolen", "clear-site-data": "*", "x-own": "1",
      "content-security-policy": "default-src *", "access-control-allow-origin": "*", "location": "/x",
    }})
    """
    await workshop.deploy("page", code, triggers=http(auth="none"))
    answer = await workshop.call("page", "GET")
    assert (answer.headers["content-type"], answer.headers["x-own"]) == ("text/html", "1")
    assert answer.headers["content-security-policy"].startswith("sandbox ")
    assert "allow-same-origin" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not {"set-cookie", "clear-site-data", "access-control-allow-origin"} & answer.headers.keys()
    [row] = await workshop.list_logs("page")
    assert "set-cookie" in row["consoleLogs"][-1]["message"]


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("export default () => { throw new Error('no luck') }", 500, "no luck"),
        ("export default () => 'text'", 500, "Response"),
        ("export default () => new Promise(() => {})", 504, "function_timeout"),
    ],
)
async def test_how_a_function_fails_is_answered_and_logged(
    workshop: Workshop, code: str, status: int, error: str
) -> None:
    await workshop.deploy("fails", code, timeoutMs=300, triggers=http(auth="none"))
    answer = await workshop.call("fails")
    assert answer.status_code == status
    assert error in answer.json()["error"]
    assert "stack" not in answer.json()
    [row] = await workshop.list_logs("fails", level="error")
    assert (row["statusCode"], row["version"], row["method"]) == (status, 1, "POST")
    assert row["error"]
    [function] = (await workshop.request("GET", "/functions"))["functions"]
    assert (function["status"], function["errorRate"], function["lastStatus"]) == ("error", 1.0, status)


async def test_those_who_run_the_app_see_the_stack_and_no_secret(workshop: Workshop) -> None:
    code = "export default (req, ctx) => { console.log('key', ctx.env.KEY); throw new Error('with ' + ctx.env.KEY) }"
    await workshop.deploy("fails", code, envVars={"KEY": "hunter2-hunter2"})
    answer = await workshop.call("fails", headers=workshop.owner)
    assert "with (hidden)" in answer.json()["error"]
    assert answer.json()["stack"]
    [row] = await workshop.list_logs("fails")
    assert row["consoleLogs"][0]["message"] == "key (hidden)"
    assert "hunter2" not in answer.text + json.dumps(row)


async def test_functions_of_a_paused_app_do_not_run(workshop: Workshop) -> None:
    await workshop.deploy("hello", triggers=http(auth="none"))
    await workshop.request("PATCH", "/config/pause", json={"paused": True, "reason": "Closed"})
    refusal = await workshop.call("hello")
    assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "60")
    assert refusal.json()["error"]["code"] == AppPaused.code
    assert refusal.json()["error"]["details"]["paused_reason"] == "Closed"


async def test_a_test_call_passes_the_answer_on_and_an_mcp_client_gets_it_as_json(workshop: Workshop) -> None:
    await workshop.deploy("echo", ECHO, triggers=[])
    answer = await workshop.send("POST", "/functions/echo/invoke", json=["any", {"json": 1}])
    assert (answer.status_code, json.loads(answer.json()["body"])) == (201, ["any", {"json": 1}])
    await workshop.request("POST", "/functions/none/invoke", 404, json={})


async def test_bodies_stream_both_ways(workshop: Workshop) -> None:
    """The function answers the first piece before the second one is sent."""
    code = """
    export default (req) => new Response(req.body.pipeThrough(new TransformStream({
      transform(piece, out) { out.enqueue(piece) },
    })), {headers: {"content-type": "text/event-stream"}})
    """
    await workshop.deploy("pipe", code)
    answers: asyncio.Queue[Any] = asyncio.Queue()
    pieces = [b"one", b"two", b"three"]

    async def receive() -> Any:
        if not pieces:
            await asyncio.Event().wait()
        piece = pieces.pop(0)
        if len(pieces) < 2:
            # Only once what was sent before has come back.
            assert (await answers.get())["body"]
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    path = f"/v1/{workshop.app}/fn/pipe"
    headers = [(name.encode(), value.encode()) for name, value in workshop.owner.items()]
    headers += [(b"host", b"127.0.0.1:8000"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("127.0.0.1", 1), "scheme": "http", "http_version": "1.1"}

    async def respond(message: Any) -> None:
        if message["type"] == "http.response.body":
            await answers.put(message)
        else:
            assert message["status"] == 200

    await get_asgi_app(workshop.client)(scope, receive, respond)
    rest = []
    while not answers.empty():
        rest.append((await answers.get())["body"])
    assert b"".join(rest) == b"three"


async def test_logs_are_followed_from_the_last_event_on(workshop: Workshop) -> None:
    await workshop.deploy("hello")
    for _ in range(2):
        await workshop.call("hello", headers=workshop.owner)
        await workshop.settle()
        workshop.clock.advance(1)
    since = "2020-01-01T00:00:00Z"
    events = await read_events(workshop, 2, params={"since": since})
    assert [json.loads(event["data"])["statusCode"] for event in events] == [200, 200]
    assert events[0]["event"] == "log"
    later = await read_events(workshop, 1, headers={**workshop.owner, "last-event-id": events[0]["id"]})
    assert later == events[1:]


async def read_events(workshop: Workshop, count: int, **options: Any) -> list[dict[str, str]]:
    """Reads events of the log of `hello`, and closes the stream."""
    params, headers = options.get("params", {}), options.get("headers", workshop.owner)
    query = "&".join(f"{name}={value}" for name, value in params.items())
    path = f"/v1/{workshop.app}/functions/hello/logs/stream"
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()] + [(b"host", b"127.0.0.1:8000")]
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    scope |= {"headers": pairs, "client": ("127.0.0.1", 1), "scheme": "http", "http_version": "1.1"}
    text, is_enough = b"", asyncio.Event()

    async def receive() -> Any:
        await is_enough.wait()
        return {"type": "http.disconnect"}

    async def respond(message: Any) -> None:
        nonlocal text
        text += message.get("body", b"")
        if text.count(b"event: log") >= count:
            is_enough.set()

    await get_asgi_app(workshop.client)(scope, receive, respond)
    blocks = [block for block in text.decode().split("\n\n") if "event: log" in block]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
