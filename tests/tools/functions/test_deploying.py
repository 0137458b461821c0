"""Functions are deployed, listed, read, changed and deleted."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import insert, select, update

from baobab.runtime.functions.source_errors import BadSource
from baobab.tools.functions.tables import invocations, usage
from tests.runtime.functions.test_packages import REGISTRY, FakeRegistry
from tests.tools.functions.conftest import HELLO, Workshop, open_workshop
from tests.tools.functions.test_host import serve

_CRON = {"type": "cron", "config": {"schedule": "0 2 * * *"}}


def write_constant(text: str) -> str:
    return f"export default () => new Response({text!r})"


async def test_a_deployed_function_answers_at_its_address_and_is_listed(workshop: Workshop) -> None:
    answer = await workshop.deploy("hello")
    assert answer["url"].endswith(f"/v1/{workshop.app}/fn/hello")
    assert (answer["triggers"], answer["version"]) == ([{"type": "http", "enabled": True}], 1)
    assert answer["cacheInvalidation"] == {"success": True, "attempts": 1}
    response = await workshop.call("hello", headers=workshop.owner)
    assert (response.status_code, response.json()) == (200, {"hello": "hello"})
    await workshop.settle()
    [row] = (await workshop.request("GET", "/functions"))["functions"]
    assert (row["name"], row["status"], row["lastStatus"], row["invocationCount"]) == ("hello", "active", 200, 1)
    tool_fields = [row[name] for name in ("agent_tool", "agent_tool_description", "agent_tool_mode")]
    assert tool_fields == [False, None, "read_only"]
    function = await workshop.request("GET", "/functions/hello")
    assert (function["code"], function["timeoutMs"], function["memoryLimitMb"]) == (HELLO, 30_000, 128)
    assert (function["agent_tool_exposed_to"], function["allow_service_key_impersonation"]) == ("developer_only", True)


async def test_another_deployment_keeps_what_it_leaves_out_and_replaces_triggers_that_it_gives(
    workshop: Workshop,
) -> None:
    first = await workshop.deploy(
        "report", timeoutMs=1000, memoryLimitMb=64, triggers=[{"type": "http", "config": {"auth": "none"}}, _CRON]
    )
    again = await workshop.deploy("report", message="Says more", description="A report")
    assert (again["id"], again["version"], again["changed"]) == (first["id"], 2, False)
    function = await workshop.request("GET", "/functions/report")
    assert (function["timeoutMs"], function["memoryLimitMb"], function["description"]) == (1000, 64, "A report")
    assert [each["type"] for each in function["triggers"]] == ["http", "cron"]
    last = await workshop.deploy("report", trigger=_CRON)
    assert (last["url"], last["triggers"]) == (None, [{"type": "cron", "enabled": True}])
    assert (await workshop.call("report", headers=workshop.owner)).status_code == 404


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"code": "export const x = 1"}, "handler"),
        ({"code": "export default ("}, "line 1"),
        ({"code": "import x from './other.ts'; export default () => new Response('')"}, "./other.ts"),
        ({"triggers": [_CRON, _CRON]}, "two triggers of the type `cron`"),
        ({"triggers": [{"type": "cron", "config": {"schedule": "61 * * * *"}}]}, "schedule"),
        ({"triggers": [{"type": "cron", "config": {"schedule": "* * * * * *"}}]}, "schedule"),
        ({"triggers": [{"type": "cron"}]}, "schedule"),
        ({"triggers": [{"type": "cron", "config": {"schedule": "0 2 * * *", "timezone": "Mars"}}]}, "timezone"),
        ({"triggers": [{"type": "storage_upload", "config": {"bucket": "other"}}]}, "bucket"),
        ({"triggers": [{"type": "webhook", "config": {"provider": "stripe"}}]}, "secret"),
        ({"triggers": [{"type": "http", "config": {"schedule": "0 2 * * *"}}]}, "`schedule`"),
        ({"triggers": [_CRON], "trigger": _CRON}, "one of the two"),
        ({"envVars": {"PLATFORM_APP_ID": "app_x"}}, "PLATFORM_"),
        ({"envVars": {"a b": "x"}}, "name of a variable"),
        ({"timeoutMs": 0}, "timeoutMs"),
        ({"timeoutMs": 300_001}, "timeoutMs"),
        ({"memoryLimitMb": 63}, "memoryLimitMb"),
        ({"memoryLimitMb": 1025}, "memoryLimitMb"),
        ({"language": "python"}, "SyntaxError"),
        ({"code": f"export default () => new Response('{'ä' * (600 * 1024)}')"}, "bytes"),
        ({"agent_tool_description": "x" * 501}, "agent_tool_description"),
    ],
)
async def test_what_cannot_be_deployed_is_refused_and_nothing_is_there(
    workshop: Workshop, settings: dict[str, Any], words: str
) -> None:
    body = {"name": "broken", "code": HELLO, **settings}
    refusal = await workshop.request("POST", "/functions", 400, json=body)
    assert words in refusal["error"]["message"]
    assert (await workshop.request("GET", "/functions"))["functions"] == []
    assert (await workshop.request("GET", "/triggers"))["triggers"] == []


async def test_names_that_differ_only_in_case_are_refused_until_the_first_is_deleted(workshop: Workshop) -> None:
    await workshop.deploy("Hello")
    refusal = await workshop.deploy("hello", expected=409)
    assert refusal["error"]["details"] == {"name": "Hello"}
    assert await workshop.request("DELETE", "/functions/Hello") == {"success": True}
    assert (await workshop.deploy("hello"))["version"] == 1


async def test_versions_are_listed_compared_previewed_and_rolled_back_to(workshop: Workshop) -> None:
    await workshop.deploy("page", write_constant("one"))
    await workshop.deploy("page", write_constant("two"), message="Counts on")
    versions = (await workshop.request("GET", "/functions/page/versions"))["versions"]
    assert [(each["number"], each["live"], each["message"]) for each in versions] == [
        (2, True, "Counts on"),
        (1, False, None),
    ]
    assert versions[0]["author"]["kind"] == "api_key"
    diff = (await workshop.request("GET", "/functions/page/versions/1/diff"))["diff"]
    assert "-export default () => new Response('two')" in diff
    preview = await workshop.call("page@1", headers=workshop.owner)
    assert preview.text == "one"
    assert (await workshop.call("page@1")).status_code == 401
    await workshop.request("POST", "/functions/page/versions/1/rollback")
    assert (await workshop.call("page", headers=workshop.owner)).text == "one"
    assert (await workshop.request("GET", "/functions/page"))["version"] == 1
    await workshop.request("POST", "/functions/page/versions/7/rollback", 404)
    assert (await workshop.deploy("page", write_constant("three")))["version"] == 3


async def test_the_environment_is_merged_never_shown_and_the_functions_own_wins(workshop: Workshop) -> None:
    code = "export default (req, ctx) => Response.json(ctx.env)"
    await workshop.deploy("env", code, envVars={"A": "own", "B": "own"})
    answer = await workshop.request("PATCH", "/env", json={"envVars": {"A": "app", "C": "app"}})
    assert answer == {"updatedKeys": ["A", "C"], "invalidated": {"functions": ["env"], "count": 1}}
    env = (await workshop.call("env", headers=workshop.owner)).json()
    assert [env[name] for name in "ABC"] == ["own", "own", "app"]
    assert env["PLATFORM_APP_ID"] == workshop.app
    assert env["PLATFORM_API_URL"] == "http://127.0.0.1:8000"
    answer = await workshop.request("PATCH", "/functions/env/env", json={"envVars": {"B": None, "D": "new"}})
    assert (answer["function"], answer["updatedKeys"]) == ("env", ["A", "D"])
    await workshop.deploy("env", code, envVars={"E": "x"})
    assert (await workshop.request("GET", "/functions/env"))["envKeys"] == ["A", "D", "E"]
    await workshop.deploy("env", code, envVars={"F": "x"}, envVarsReplace=True)
    assert (await workshop.request("GET", "/functions/env"))["envKeys"] == ["F"]
    env = await workshop.request("GET", "/env")
    assert (env["keys"], "app" in str(env["updatedAt"])) == (["A", "C"], False)
    for path in ("/env", "/functions/env/env"):
        refusal = await workshop.request("PATCH", path, 400, json={"envVars": {"PLATFORM_X": "1"}})
        assert "PLATFORM_" in refusal["error"]["message"]


async def test_settings_need_something_to_change(workshop: Workshop) -> None:
    await workshop.deploy("hello")
    await workshop.request("PATCH", "/functions/hello/settings", 400, json={})
    body = {"allow_service_key_impersonation": False}
    answer = await workshop.request("PATCH", "/functions/hello/settings", json=body)
    assert answer["function"] == "hello"
    assert (await workshop.request("GET", "/functions/hello"))["allow_service_key_impersonation"] is False


async def test_a_deleted_function_is_gone_and_its_log_is_kept(workshop: Workshop) -> None:
    await workshop.deploy("hello", triggers=[{"type": "http"}, _CRON])
    await workshop.call("hello", headers=workshop.owner)
    await workshop.settle()
    await workshop.request("DELETE", "/functions/hello")
    refusal = await workshop.call("hello", headers=workshop.owner)
    assert (refusal.status_code, refusal.json()["error"]) == (404, "Function not found")
    for path in ("/functions/hello", "/functions/hello/logs"):
        assert (await workshop.request("GET", path, 404))["error"]["code"] == "RESOURCE_NOT_FOUND"
    logs = await workshop.list_logs("hello", include_deleted=True)
    assert [each["statusCode"] for each in logs] == [200]
    assert (await workshop.request("GET", "/triggers"))["triggers"] == []


async def test_the_audit_log_says_who_deployed_what(workshop: Workshop) -> None:
    await workshop.deploy("hello", envVars={"KEY": "a secret value"})
    logs = await workshop.request("GET", "/audit-logs?category=function")
    [row] = logs["logs"]
    assert (row["event_type"], row["action"], row["resource_type"]) == ("function.deploy", "create", "function")
    assert row["event_data"]["version"] == 1
    assert "a secret value" not in str(logs)


async def test_calls_beyond_the_plan_are_refused(tmp_path: Path) -> None:
    async with open_workshop(tmp_path, BAOBAB_PLAN="playground") as workshop:
        function_id = (await workshop.deploy("hello"))["id"]
        now = workshop.clock.now()
        counts = {"invocations": 49_999, "errors": 0, "duration_ms": 1.0, "last_at": now, "last_status": 200}
        row = {"app_id": workshop.app, "function_id": function_id, "hour": now.strftime("%Y-%m-%dT%H"), **counts}
        services = workshop.application.services
        async with services.stores_of("local").database.writing(lock=None) as connection:
            await connection.execute(insert(usage), row)
        assert (await workshop.call("hello", headers=workshop.owner)).status_code == 200
        refusal = await workshop.call("hello", headers=workshop.owner)
        assert (refusal.status_code, refusal.json()["error"]) == (403, "plan_limit_exceeded")
        assert (refusal.json()["what"], refusal.json()["limit"]) == ("function invocations", 50_000)


async def test_packages_come_from_the_registry_of_the_installation_once_and_at_deploy(tmp_path: Path) -> None:
    registry = FakeRegistry()

    async def answer(request: web.Request) -> web.Response:
        try:
            body = await registry.download(f"{REGISTRY}{request.rel_url.raw_path}", {})
        except BadSource:
            return web.Response(status=404)
        return web.Response(body=body.replace(REGISTRY.encode(), str(request.url.origin()).encode()))

    code = 'import { modern } from "npm:modern@3"; export default () => Response.json(modern().length);'
    async with serve(answer) as url, open_workshop(tmp_path, BAOBAB_NPM_REGISTRY=url) as workshop:
        await workshop.deploy("packed", code)
        asked_count = len(registry.paths)
        for _ in range(2):
            assert (await workshop.call("packed", headers=workshop.owner)).json() == 6
        assert len(registry.paths) == asked_count
        refusal = await workshop.deploy("packed", code.replace("modern@3", "modern@9"), expected=400)
        assert "no version of modern" in refusal["error"]["message"]
        assert (await workshop.call("packed", headers=workshop.owner)).json() == 6


async def test_without_a_registry_packages_are_refused_and_all_else_deploys(workshop: Workshop) -> None:
    refusal = await workshop.deploy("packed", 'import "npm:modern"; export default () => 1', expected=400)
    assert "BAOBAB_NPM_REGISTRY" in refusal["error"]["message"]
    await workshop.deploy("plain")


async def test_the_list_says_how_long_95_of_100_calls_took(workshop: Workshop) -> None:
    await workshop.deploy("timed")
    [row] = (await workshop.request("GET", "/functions"))["functions"]
    assert (row["p95Duration"], row["avgDuration"]) == (None, None)
    assert (await workshop.call("timed", headers=workshop.owner)).status_code == 200
    await workshop.settle()
    database = workshop.application.services.stores_of("local").database
    async with database.writing(lock=None) as connection:
        call = (await connection.execute(select(invocations))).mappings().one()
        await connection.execute(update(invocations).values(duration_ms=1.0))
        rows = [{**call, "id": f"call-{number}", "duration_ms": float(number)} for number in range(2, 101)]
        # What was longer ago does not count.
        rows.append({**call, "id": "old", "duration_ms": 1e6, "logged_at": call["logged_at"] - timedelta(days=2)})
        await connection.execute(insert(invocations), rows)
    [row] = (await workshop.request("GET", "/functions"))["functions"]
    assert row["p95Duration"] == 95.0
