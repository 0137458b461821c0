"""What a running function asks of the platform: every member of `ctx`, `fetch`, and other functions."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from baobab.tools.functions.errors import HostNotAllowed
from baobab.tools.functions.fetching import require_host
from tests.tools.functions.conftest import Workshop
from tests.tools.functions.test_calls import http, make_key, make_user

_ADA = "11111111-1111-4111-8111-111111111111"


async def evaluate(workshop: Workshop, body: str, headers: dict[str, str] | None = None, **settings: Any) -> Any:
    """Runs the body of an async function with `ctx`, and returns what it returns; an error as its code and message."""
    code = f"""
    export default async (req, ctx) => {{
      try {{ return Response.json({{value: await (async () => {{ {body} }})()}}) }}
      catch (error) {{ return Response.json({{code: error.code, message: error.message}}) }}
    }}
    """
    await workshop.deploy("probe", code, **settings)
    answer = await workshop.call("probe", headers=workshop.owner if headers is None else headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


@contextlib.asynccontextmanager
async def serve(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """A server elsewhere, and its address."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application, host="127.0.0.1") as server:
        yield str(server.make_url("/")).rstrip("/")


async def test_keys_are_read_and_written(workshop: Workshop) -> None:
    body = """
    await ctx.kv.set("a", {n: 1}, {ttl: 60});
    await ctx.kv.setex("b", 60, "text");
    await ctx.kv.mset({c: 3, d: 4});
    return [
      await ctx.kv.get("a"), await ctx.kv.get("b"), await ctx.kv.get("nothing"), await ctx.kv.incr("count"),
      await ctx.kv.incr("count", 4), await ctx.kv.decr("count"), await ctx.kv.setnx("a", 2), await ctx.kv.setnx("e", 2),
      await ctx.kv.cas("e", 2, 3), await ctx.kv.exists("e"), await ctx.kv.ttl("a"), await ctx.kv.expire("a", 10),
      await ctx.kv.mget(["c", "d", "nothing"]), await ctx.kv.del("c"),
      await ctx.kv.expose("open/*", {read: "public"}), (await ctx.kv.listRules()).length,
      await ctx.kv.unexpose("open/*"),
    ]
    """
    values = {"n": 1}, "text", None, 1, 5, 4, False, True, True, True, 60, True, [3, 4, None], 1, True, 1, 1
    assert await evaluate(workshop, body) == {"value": [*values]}


async def test_keys_open_to_functions_whoever_calls(workshop: Workshop) -> None:
    user = await make_user(workshop)
    assert await evaluate(workshop, "await ctx.kv.set('k', 1); return ctx.kv.get('k')", user) == {"value": 1}


async def test_files_belong_to_the_user_for_whom_the_function_runs(workshop: Workshop) -> None:
    body = """
    const file = await ctx.storage.put("a.bin", new Uint8Array([1, 2, 255]), {contentType: "application/x-a"});
    const text = await ctx.storage.put("b.txt", "grün");
    const bytes = await ctx.storage.get(file.id);
    const address = await ctx.storage.getDownloadUrl(text.id);
    const upload = await ctx.storage.getUploadUrl("c.txt", "text/plain", 3);
    const names = (await ctx.storage.list()).map((each) => each.filename).sort();
    await ctx.storage.delete(text.id);
    return [[...bytes], file.user_id, address.filename, upload.expiresIn > 0, names, (await ctx.storage.list()).length,
      await ctx.storage.get(text.id)]
    """
    expected_value = [[1, 2, 255], _ADA, "b.txt", True, ["a.bin", "b.txt"], 1, None]
    assert await evaluate(workshop, body, await make_user(workshop)) == {"value": expected_value}
    assert len((await evaluate(workshop, "return ctx.storage.list()"))["value"]) == 1
    other = await make_user(workshop, "22222222-2222-4222-8222-222222222222")
    assert await evaluate(workshop, "return ctx.storage.list()", other) == {"value": []}


async def test_models_are_called_at_the_apps_expense(workshop: Workshop) -> None:
    answer = await evaluate(workshop, "return (await ctx.ai.embeddings({input: 'Hello'})).data[0].embedding.length")
    assert answer["value"] > 100


async def test_a_claim_is_given_once(workshop: Workshop) -> None:
    body = """
    return [await ctx.idempotency.claim("a"), await ctx.idempotency.claim("a"),
      await ctx.idempotency.claim("a", {scope: "b"}), await ctx.idempotency.claim("t", {ttlSeconds: 10}),
      (await Promise.all([1, 2, 3, 4].map(() => ctx.idempotency.claim("race")))).filter((won) => won).length]
    """
    assert (await evaluate(workshop, body))["value"] == [True, False, True, True, 1]
    again = "return [await ctx.idempotency.claim('a'), await ctx.idempotency.claim('t', {ttlSeconds: 10})]"
    assert (await evaluate(workshop, again))["value"] == [False, False]
    workshop.clock.advance(11)
    assert (await evaluate(workshop, again))["value"] == [False, True]


async def test_a_step_is_done_once_in_an_invocation(workshop: Workshop) -> None:
    body = """
    let count = 0;
    const once = () => ctx.step("first", async () => ({count: ++count}));
    return [await once(), await once(), await ctx.step("nothing", () => undefined)]
    """
    assert (await evaluate(workshop, body))["value"] == [{"count": 1}, {"count": 1}, None]
    # Another call is another invocation.
    assert (await evaluate(workshop, body))["value"][0] == {"count": 1}


async def test_ctx_says_where_the_function_runs(workshop: Workshop) -> None:
    answer = await evaluate(workshop, "return [ctx.app, ctx.request, ctx.substrate]")
    app, request, substrate = answer["value"]
    assert (app["id"], app["region"], app["auth"]["accessTokenTtl"]) == (workshop.app, "local", "1h")
    assert app["anonKey"].startswith("bb_anon_")
    assert app["ownerId"]
    assert (request["functionName"], request["country"], substrate) == ("probe", None, None)


async def test_functions_call_each_other_four_deep_as_the_same_user(workshop: Workshop) -> None:
    code = """
    export default async (req, ctx) => {
      const {left} = await req.json();
      if (left === 0) return Response.json({depth: 0, user: ctx.user.id, caller: ctx.caller.type});
      try { return await ctx.invoke("deep", {left: left - 1}) }
      catch (error) { return Response.json({code: error.code}, {status: 508}) }
    }
    """
    await workshop.deploy("deep", code)
    user = await make_user(workshop)
    answer = await workshop.call("deep", headers=user, json={"left": 4})
    assert answer.json() == {"depth": 0, "user": _ADA, "caller": "loopback"}
    assert (await workshop.call("deep", headers=user, json={"left": 5})).json() == {"code": "FUNCTION_TOO_DEEP"}
    triggers = [each["trigger"] for each in await workshop.list_logs("deep")]
    assert triggers.count("http") == 2
    assert triggers.count("invoke") == 8


async def test_fetch_reaches_the_own_apps_paths_without_a_socket_and_with_the_callers_right(workshop: Workshop) -> None:
    get = (
        "const r = await fetch(`${ctx.env.PLATFORM_API_URL}/v1/${ctx.app.id}/kv/k`); return [r.status, await r.json()]"
    )
    await evaluate(workshop, "await ctx.kv.set('k', {deep: true})")
    assert (await evaluate(workshop, get))["value"] == [200, {"value": {"deep": True}}]
    assert (await evaluate(workshop, get, await make_user(workshop)))["value"][0] == 403
    put = """
    const r = await fetch(`${ctx.env.PLATFORM_API_URL}/v1/${ctx.app.id}/kv/k`, {
      method: "PUT", body: JSON.stringify({value: 2}),
      headers: {authorization: `Bearer ${ctx.env.KEY}`, "content-type": "application/json"}});
    return [r.status, await ctx.kv.get("k")]
    """
    key = (await make_key(workshop))["authorization"].removeprefix("Bearer ")
    open_to_all = {"envVars": {"KEY": key}, "triggers": http(auth="none")}
    assert (await evaluate(workshop, put, {}, **open_to_all))["value"] == [204, 2]


@pytest.mark.parametrize(
    "url",
    [
        "${ctx.env.PLATFORM_API_URL}/v1/app_other00000/kv/k",
        "${ctx.env.PLATFORM_API_URL}/v1/${ctx.app.id}/../app_other00000/kv/k",
        "${ctx.env.PLATFORM_API_URL}/v1/${ctx.app.id}/..%2fapp_other00000/kv/k",
        "${ctx.env.PLATFORM_API_URL}/health",
        "${ctx.env.PLATFORM_API_URL}/console",
        "http://localhost:8000/v1/${ctx.app.id}/kv/k",
        "http://x.localhost:8000/kv/k",
    ],
)
async def test_fetch_reaches_nothing_else_of_this_server(workshop: Workshop, url: str) -> None:
    answer = await evaluate(workshop, f"return (await fetch(`{url}`)).status")
    assert answer.get("value") in (None, 404), answer
    if "code" in answer:
        assert answer["code"] in ("FUNCTION_FETCH_REFUSED", "AUTH_FORBIDDEN")


async def test_fetch_through_the_own_door_counts_as_a_hop(workshop: Workshop) -> None:
    code = """
    export default async (req, ctx) => {
      const url = `${ctx.env.PLATFORM_API_URL}/v1/${ctx.app.id}/fn/loop`;
      const answer = await fetch(url, {method: "POST"});
      return new Response(await answer.text(), {status: answer.status});
    }
    """
    await workshop.deploy("loop", code)
    answer = await workshop.call("loop", headers=workshop.owner)
    assert (answer.status_code, answer.json()["error"]) == (508, "function_too_deep")
    assert len(await workshop.list_logs("loop")) == 5


async def test_rows_are_read_and_written_by_sql_with_the_right_of_whoever_it_runs_for(workshop: Workshop) -> None:
    columns = {"id": {"type": "serial", "primaryKey": True}, "title": "text"}
    schema = {"tables": {"notes": {"columns": columns}}}
    await workshop.request("POST", "/schema/apply", json={"schema": schema})
    await workshop.request("POST", "/rls/enable", json={"table_name": "notes"})
    body = """
    const {rowCount} = await ctx.db.query("insert into notes (title) values ($1)", ["Hello"]);
    const {rows} = await ctx.db.query("select title from notes where title = $1", ["Hello"]);
    const anonymous = await ctx.db.asAnon((db) => db.query("select title from notes"))
      .catch((error) => ({rows: error.code}));
    return [rowCount, rows, anonymous.rows]
    """
    answer = await evaluate(workshop, body)
    assert answer["value"][:2] == [1, [{"title": "Hello"}]]
    assert answer["value"][2] in ([], "AUTH_RLS_REQUIRES_USER_JWT")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("await ctx.kv.get(7)", "the key"),
        ("await ctx.kv.set('k', 1, {tll: 2})", "'tll'"),
        ("await ctx.storage.put('a', {no: 'bytes'})", "bytes"),
        ("await ctx.db.asUser('nobody', (db) => db.query('select 1'))", "uuid"),
        ("await ctx.idempotency.claim('')", "the key"),
        ("await ctx.ai.meetings.dance()", "start"),
    ],
)
async def test_wrong_arguments_are_explained(workshop: Workshop, body: str, words: str) -> None:
    answer = await evaluate(workshop, body)
    assert words in answer["message"]


async def test_what_waits_until_after_the_answer_is_done_and_logged(workshop: Workshop) -> None:
    body = """
    ctx.waitUntil((async () => { await ctx.kv.set("later", 1); console.log("done") })());
    return 1
    """
    assert await evaluate(workshop, body) == {"value": 1}
    [row] = await workshop.list_logs("probe")
    assert [each["message"] for each in row["consoleLogs"]] == ["done"]
    assert await evaluate(workshop, "return ctx.kv.get('later')") == {"value": 1}


async def test_fetch_reaches_only_the_hosts_that_the_function_names_at_each_redirect(workshop: Workshop) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/away":
            raise web.HTTPFound(f"http://127.0.0.2:{request.url.port}/")
        return web.Response(text="here")

    async with serve(answer) as url:
        get = f"return await (await fetch('{url}/')).text()"
        away = f"return await (await fetch('{url}/away')).text()"
        assert await evaluate(workshop, get) == {"value": "here"}
        for hosts in ([], ["api.shop.example", "*.shop.example"]):
            refusal = await evaluate(workshop, get, allowed_hosts=hosts)
            assert (refusal["code"], "allowed_hosts" in refusal["message"]) == ("FUNCTION_FETCH_REFUSED", True)
        # Left out, the list stays; what follows is what it names.
        assert (await evaluate(workshop, get))["code"] == "FUNCTION_FETCH_REFUSED"
        assert await evaluate(workshop, get, allowed_hosts=["127.0.0.1"]) == {"value": "here"}
        assert (await evaluate(workshop, away))["code"] == "FUNCTION_FETCH_REFUSED"
        own = "return (await fetch(`${ctx.env.PLATFORM_API_URL}/v1/${ctx.app.id}/kv/k`)).status"
        assert await evaluate(workshop, own) == {"value": 404}
        answer_json = await workshop.request("PATCH", "/functions/probe/settings", json={"allowed_hosts": None})
        assert answer_json["allowed_hosts"] is None
        assert await evaluate(workshop, get) == {"value": "here"}


@pytest.mark.parametrize(
    ("host", "allowed", "is_reached"),
    [
        ("api.shop.example", "api.shop.example", True),
        ("API.shop.example.", "api.shop.example", True),
        ("eu.api.shop.example", "*.shop.example", True),
        ("shop.example", "*.shop.example", False),
        ("badshop.example", "*.shop.example", False),
        ("api.shop.example.evil.example", "api.shop.example", False),
    ],
)
def test_a_star_names_what_stands_below_a_name(host: str, allowed: str, is_reached: bool) -> None:
    row = SimpleNamespace(name="probe", allowed_hosts=[allowed])
    with contextlib.nullcontext() if is_reached else pytest.raises(HostNotAllowed):
        require_host(row, host)


@pytest.mark.parametrize(
    "host", ["https://shop.example", "shop.example/a", "*", "a b", "*.*.example", "shop.example:1"]
)
async def test_what_is_no_host_is_refused(workshop: Workshop, host: str) -> None:
    await workshop.deploy("probe", allowed_hosts=[host], expected=400)
