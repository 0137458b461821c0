"""What `ctx` sends to the host, and what it makes of the answers."""

import asyncio
from typing import Any

import pytest

from baobab.runtime.functions.answer import FunctionAnswer, Report
from baobab.runtime.functions.host import FetchRequest, FetchResponse, HostRefusal
from baobab.runtime.functions.program import FunctionRequest
from tests.runtime.functions.sandboxes import Sandbox, TableHost, iterate, make_request, read

USER, ANON = ("user", "u7"), ("anon",)


@pytest.mark.parametrize(
    ("expression", "member", "arguments", "acting"),
    [
        ("ctx.db.query('select 1')", "db.query", ["select 1", []], None),
        ("ctx.db.query('select $1', [1])", "db.query", ["select $1", [1]], None),
        ("ctx.db.asUser('u7', (db) => db.query('select 1'))", "db.query", ["select 1", []], USER),
        ("ctx.db.asAnon((db) => db.query('select 1'))", "db.query", ["select 1", []], ANON),
        ("ctx.kv.get('a')", "kv.get", ["a"], None),
        ("ctx.kv.set('a', { b: 1 }, { ttl: 5 })", "kv.set", ["a", {"b": 1}, {"ttl": 5}], None),
        ("ctx.kv.mget(['a', 'b'])", "kv.mget", [["a", "b"]], None),
        ("ctx.storage.put('a.txt', new Uint8Array([1, 2]))", "storage.put", ["a.txt", {"$base64": "AQI="}], None),
        ("ctx.storage.put('a.txt', new Blob(['ab']))", "storage.put", ["a.txt", {"$base64": "YWI="}], None),
        (
            "ctx.storage.put('a.txt', 'text', { contentType: 'x' })",
            "storage.put",
            ["a.txt", "text", {"contentType": "x"}],
            None,
        ),
        ("ctx.ai.chat({ messages: [] })", "ai.chat", [{"messages": []}], None),
        ("ctx.ai.embeddings({ input: 'a' })", "ai.embeddings", [{"input": "a"}], None),
        ("ctx.ai.images({ prompt: 'a' })", "ai.images", [{"prompt": "a"}], None),
        ("ctx.ai.meetings.create({ url: 'x' })", "ai.meetings.create", [{"url": "x"}], None),
        (
            "ctx.integrations.execute('GMAIL_SEND_EMAIL', { to: 'a' })",
            "integrations.execute",
            ["GMAIL_SEND_EMAIL", {"to": "a"}],
            None,
        ),
        ("ctx.integrations.asUser('u7').execute('X')", "integrations.execute", ["X", {}], USER),
        ("ctx.idempotency.claim('k', { scope: 's' })", "idempotency.claim", ["k", {"scope": "s"}], None),
    ],
)
async def test_a_member_of_ctx_asks_the_host(
    sandbox: Sandbox, expression: str, member: str, arguments: list[Any], acting: Any
) -> None:
    host = TableHost({member: {"from": "the host"}})
    assert await sandbox.evaluate(f"await {expression}", host=host) == {"value": {"from": "the host"}}
    assert host.calls == [(member, arguments, acting)]


async def test_substrate_is_there_only_where_the_app_is_linked(sandbox: Sandbox) -> None:
    assert await sandbox.evaluate("ctx.substrate") == {"value": None}
    host = TableHost({"substrate.propose": {"id": "a1"}})
    context = {"app": {"id": "app1", "substrateOrganizationId": "org1"}}
    expression = "await ctx.substrate.propose('crm.update', { a: 1 }, { idempotency_key: 'k' })"
    assert await sandbox.evaluate(expression, host=host, context=context) == {"value": {"id": "a1"}}
    assert host.calls == [("substrate.propose", ["crm.update", {"a": 1}, {"idempotency_key": "k"}], None)]


async def test_bytes_of_the_host_arrive_as_bytes(sandbox: Sandbox) -> None:
    host = TableHost({"storage.get": {"$base64": "AQID"}})
    expression = "Array.from(await ctx.storage.get('a'))"
    assert await sandbox.evaluate(expression, host=host) == {"value": [1, 2, 3]}


async def test_a_refusal_is_an_error_with_its_code_and_remedy(sandbox: Sandbox) -> None:
    host = TableHost({"kv.set": HostRefusal("FORBIDDEN", "This function only reads.", "Set agent_tool_mode.")})
    expression = "await ctx.kv.set('a', 1).catch((e) => [e instanceof Error, e.code, e.message, e.remediation])"
    assert await sandbox.evaluate(expression, host=host) == {
        "value": [True, "FORBIDDEN", "This function only reads.", "Set agent_tool_mode."]
    }


async def test_a_fault_of_the_host_tells_the_program_nothing(sandbox: Sandbox) -> None:
    host = TableHost({"kv.get": RuntimeError("password=hunter2 in /srv/secret")})
    error = await sandbox.evaluate("await ctx.kv.get('a')", host=host)
    assert error == {"error": "The server could not do this."}


async def test_a_step_is_done_once_and_its_value_kept(sandbox: Sandbox) -> None:
    values: dict[str, Any] = {}

    def begin(name: str) -> Any:
        return {"done": True, "value": values[name]} if name in values else {"done": False}

    def end(name: str, outcome: Any) -> None:
        values[name] = outcome["value"]

    host = TableHost({"step.begin": begin, "step.end": end})
    expression = "[await ctx.step('pay', async () => (globalThis.paid = (globalThis.paid ?? 0) + 1)), globalThis.paid]"
    assert await sandbox.evaluate(expression, host=host) == {"value": [1, 1]}
    assert await sandbox.evaluate(expression, host=host) == {"value": [1, 1]}
    assert values == {"pay": 1}


async def test_a_step_that_throws_says_so_and_throws(sandbox: Sandbox) -> None:
    host = TableHost({"step.begin": {"done": False}})
    expression = "await ctx.step('pay', () => { throw new Error('declined') })"
    assert await sandbox.evaluate(expression, host=host) == {"error": "declined"}
    assert host.calls[-1] == ("step.end", ["pay", {"error": "declined"}], None)


async def test_fetch_goes_through_the_host(sandbox: Sandbox) -> None:
    requests = []

    async def fetch(request: FetchRequest) -> FetchResponse:
        requests.append(
            (request.method, request.url, dict(request.headers)["x-a"], await read(request.body), request.redirect)
        )
        return FetchResponse(
            404, (("x-b", "2"),), iterate(b"not ", b"there"), "https://api.example/end", redirected=True
        )

    expression = """await fetch('https://api.example/x',
        { method: 'POST', body: 'sent', headers: { 'x-a': '1' }, redirect: 'manual' })
      .then(async (r) => [r.status, r.ok, r.headers.get('x-b'), await r.text(), r.url, r.redirected])"""
    answer = await sandbox.evaluate(expression, host=TableHost(fetching=fetch))
    assert answer == {"value": [404, False, "2", "not there", "https://api.example/end", True]}
    assert requests == [("POST", "https://api.example/x", "1", b"sent", "manual")]


async def test_the_body_of_a_fetch_streams(sandbox: Sandbox) -> None:
    content = bytes(range(256)) * 4000

    async def fetch(request: FetchRequest) -> FetchResponse:
        assert request.body is not None
        return FetchResponse(200, (), request.body)

    source = "export default async (req) => fetch('https://api.example/', { method: 'POST', body: req.body })"
    result = await sandbox.run(source, make_request("POST", "/", iterate(content)), host=TableHost(fetching=fetch))
    assert result.content == content


async def test_a_fetch_that_is_refused_throws(sandbox: Sandbox) -> None:
    async def fetch(request: FetchRequest) -> FetchResponse:
        raise HostRefusal("UNSAFE_URL", "That address is private.")

    error = await sandbox.evaluate("await fetch('http://169.254.169.254/')", host=TableHost(fetching=fetch))
    assert error == {"error": "That address is private."}


async def test_a_fetch_that_is_aborted_ends_at_the_host(sandbox: Sandbox) -> None:
    is_begun, is_cancelled = asyncio.Event(), asyncio.Event()

    async def fetch(request: FetchRequest) -> FetchResponse:
        is_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()
        raise AssertionError

    host = TableHost({"kv.get": lambda key: is_begun.wait()}, fetching=fetch)
    expression = """await (async () => { const c = new AbortController();
      const p = fetch('https://api.example/', { signal: c.signal });
      await ctx.kv.get('begun'); c.abort(); return p.catch((e) => e.name); })()"""
    assert await sandbox.evaluate(expression, host=host) == {"value": "AbortError"}
    await is_cancelled.wait()


async def test_data_addresses_need_no_host(sandbox: Sandbox) -> None:
    assert await sandbox.evaluate("await (await fetch('data:text/plain,hello')).text()") == {"value": "hello"}


async def test_invoke_calls_another_function_of_the_app(sandbox: Sandbox) -> None:
    requests = []

    async def invoke(name: str, request: FunctionRequest) -> FunctionAnswer:
        requests.append((name, request.method, dict(request.headers).get("content-type"), await read(request.body)))
        report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        return FunctionAnswer(202, [("x-c", "3")], iterate(b"{}"), report)

    expression = """await ctx.invoke('mailer', { to: 'a' })
      .then(async (r) => [r.status, r.headers.get('x-c'), await r.json()])"""
    assert await sandbox.evaluate(expression, host=TableHost(invoking=invoke)) == {"value": [202, "3", {}]}
    expression = "await ctx.invoke('mailer', null, { method: 'GET' }).then((r) => r.status)"
    assert await sandbox.evaluate(expression, host=TableHost(invoking=invoke)) == {"value": 202}
    assert requests == [("mailer", "POST", "application/json", b'{"to":"a"}'), ("mailer", "GET", None, b"")]


async def test_functions_call_each_other_four_deep_and_no_deeper(sandbox: Sandbox) -> None:
    async def invoke(name: str, request: FunctionRequest) -> FunctionAnswer:
        report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        return FunctionAnswer(200, [], iterate(), report)

    host = TableHost(invoking=invoke)
    expression = "(await ctx.invoke('other')).status"
    assert await sandbox.evaluate(expression, host=host, context={"depth": 3}) == {"value": 200}
    answer = await sandbox.evaluate(expression, host=host, context={"depth": 4})
    assert answer == {"error": "Functions call each other at most 4 deep."}


async def test_ctx_does_nothing_after_its_invocation(sandbox: Sandbox) -> None:
    source = """let kept;
    export default async (req, ctx) => {
      if (!kept) { kept = ctx; return new Response(); }
      return Response.json(await kept.kv.get('x').catch((e) => e.message));
    }"""
    await sandbox.run(source)
    assert "after the invocation had ended" in (await sandbox.run(source)).json()


async def test_fetch_while_the_module_is_loaded_says_what_to_do(sandbox: Sandbox) -> None:
    source = """const early = await fetch('https://api.example/').catch((e) => e.message);
    export default () => new Response(early)"""
    assert b"while the module is loaded" in (await sandbox.run(source)).content


async def test_env_is_there_as_ctx_env_and_as_deno_and_node_have_it(sandbox: Sandbox) -> None:
    expression = "[ctx.env.KEY, Deno.env.get('KEY'), process.env.KEY, Object.isFrozen(ctx.env)]"
    assert await sandbox.evaluate(expression, env={"KEY": "v"}) == {"value": ["v", "v", "v", True]}


async def test_standard_objects_and_harmless_modules_of_node_are_there(sandbox: Sandbox) -> None:
    expression = """[(await import('node:crypto')).createHash('sha256').update('a').digest('hex').slice(0, 8),
      btoa('a'), new URL('https://a.example/b').pathname,
      (await crypto.subtle.digest('SHA-1', new Uint8Array())).byteLength,
      Buffer.from('a').toString('hex'), structuredClone({ a: 1 }).a]"""
    assert await sandbox.evaluate(expression) == {"value": ["ca978112", "YQ==", "/b", 20, "61", 1]}
