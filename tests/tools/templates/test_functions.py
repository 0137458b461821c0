"""Functions of a template: a clone has their code, and nothing of them runs by itself before its owner says so."""

from typing import Any

from tests.conftest import ADDRESS
from tests.tools.templates.conftest import Gallery

_CODE = """export default async (req, ctx) => {
  const answer = ctx.env.GREETING ?? "nothing";
  return Response.json({ answer, other: ctx.env.KEY ? "a key" : "no key" });
}
// It sends to https://collector.example/in
"""
_TRIGGERS = [
    {"type": "http", "config": {"auth": "none"}},
    {"type": "cron", "config": {"schedule": "0 7 * * *"}},
    {"type": "webhook"},
]


async def offer(gallery: Gallery) -> str:
    app = await gallery.offer()
    env = {"GREETING": "hello", "KEY": "the-template's-own-key"}
    body = {"name": "greet", "code": _CODE, "triggers": _TRIGGERS, "envVars": env}
    for code in ("export default () => new Response('old')", _CODE):
        await gallery.do("POST", f"/v1/{app}/functions", {**body, "code": code})
    return app


async def call(gallery: Gallery, app: str, headers: Any = None) -> tuple[int, Any]:
    answer = await gallery.ask("POST", f"/v1/{app}/fn/greet", {}, headers or {"accept": "*/*"})
    return answer.status_code, answer.json()


async def test_a_template_shows_its_functions_and_what_they_need_and_can_do(gallery: Gallery) -> None:
    app = await offer(gallery)
    template = await gallery.do("GET", f"/v1/templates/{app}", headers={})
    assert template["functions"] == [{"name": "greet", "trigger_type": "http, cron, webhook"}]
    assert template["schema_summary"]["function_count"] == 1
    preflight = await gallery.do("GET", f"/v1/templates/{app}/clone-preflight", headers=gallery.ada.headers)
    assert [(each["fn_name"], each["keys"]) for each in preflight["functions"]] == [("greet", ["GREETING", "KEY"])]
    assert "collector.example" in preflight["hosts"]
    kinds = {each["kind"] for each in preflight["abilities"]}
    assert {"function_http", "function_cron", "function_webhook"} <= kinds
    [fetch] = [each["says"] for each in preflight["abilities"] if each["kind"] == "function_fetch"]
    assert fetch == "Where the function greet runs, it may send what it reads to every public host."
    assert "the-template's-own-key" not in str(preflight)


async def test_a_clone_has_the_code_that_is_live_and_the_values_that_came_with_the_request(gallery: Gallery) -> None:
    app, ada = await offer(gallery), gallery.ada.headers
    state = await gallery.finish(await gallery.start(app, env_var_values={"greet": {"GREETING": "welcome"}}))
    assert state["unfilled_env_vars"] == {"greet": ["KEY"]}
    clone = state["dest_app_id"]
    function = await gallery.do("GET", f"/v1/{clone}/functions/greet", headers=ada)
    assert (function["code"], function["version"], function["envKeys"]) == (_CODE, 1, ["GREETING"])
    assert [each["enabled"] for each in function["triggers"]] == [False, False, False]
    assert (await call(gallery, clone))[0] == 404
    assert (await gallery.do("GET", f"/v1/{clone}/triggers", headers=ada))["triggers"] == []
    answer = await gallery.do("POST", f"/v1/{clone}/functions/greet/invoke", {}, ada)
    assert answer == {"answer": "welcome", "other": "no key"}
    settings = {"triggers": [{"type": "http", "config": {"auth": "none"}}, _TRIGGERS[1]]}
    await gallery.do("PATCH", f"/v1/{clone}/functions/greet/settings", settings, ada)
    assert await call(gallery, clone) == (200, {"answer": "welcome", "other": "no key"})
    [trigger] = (await gallery.do("GET", f"/v1/{clone}/triggers", headers=ada))["triggers"]
    assert (trigger["function"], trigger["status"]) == ("greet", "active")
    # The template goes on as before.
    assert (await call(gallery, app))[1]["answer"] == "hello"


async def test_a_key_that_is_minted_for_a_function_opens_the_clone(gallery: Gallery) -> None:
    app, ada = await offer(gallery), gallery.ada.headers
    code = f"""export default async (req, ctx) => {{
      const path = `{ADDRESS}/v1/${{ctx.app.id}}/kv/a`;
      const answer = await fetch(path, {{ headers: {{ authorization: `Bearer ${{ctx.env.KEY}}` }} }});
      return Response.json({{ status: answer.status }});
    }}"""
    await gallery.do("POST", f"/v1/{app}/functions", {"name": "greet", "code": code})
    keys_to_mint = [{"fn_name": "greet", "key": "KEY"}]
    clone = (await gallery.finish(await gallery.start(app, auto_mint_api_key=keys_to_mint)))["dest_app_id"]
    assert (await gallery.ask("PUT", f"/v1/{clone}/kv/a", {"value": 1}, ada)).is_success
    assert await gallery.do("POST", f"/v1/{clone}/functions/greet/invoke", {}, ada) == {"status": 200}
