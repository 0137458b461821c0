"""Functions start by themselves: at an hour, after an upload, for a webhook, a sign-in, an event of a connection."""

import asyncio
import base64
import hmac
import json
from hashlib import sha256
from typing import Any

import httpx
import pytest

from baobab.runtime.net.webhooks import build_headers
from baobab.tools.functions.tables import webhook_deliveries
from tests import jobs
from tests.tools.functions.conftest import Workshop
from tests.tools.functions.test_calls import http, make_user

NOTE = """
export default async (req, ctx) => {
  const seen = {body: await req.json(), type: req.headers.get("x-trigger-type"), user: ctx.user, id: ctx.request.id};
  await ctx.kv.set("seen", seen);
  await ctx.kv.incr("count");
  if (seen.body.fails) throw new Error("as asked");
  return Response.json(seen);
}
"""


WAIT = """
export default async (req, ctx) => {
  await ctx.kv.incr("count");
  while (!(await ctx.kv.get("go"))) await new Promise((done) => setTimeout(done, 20));
  return new Response("done");
}
"""


async def wait_for_call(workshop: Workshop) -> None:
    """Waits until the function `WAIT` has begun."""
    while await read_key(workshop, "count") is None:
        await asyncio.sleep(0.01)


async def read_key(workshop: Workshop, key: str) -> Any:
    answer = await workshop.send("GET", f"/kv/{key}")
    return answer.json()["value"] if answer.status_code == 200 else None


def cron(schedule: str = "0 2 * * *", **config: Any) -> list[dict[str, Any]]:
    return [{"type": "cron", "config": {"schedule": schedule, **config}}]


async def test_an_hour_starts_a_function_once_with_what_the_hour_is(workshop: Workshop) -> None:
    await workshop.deploy("nightly", NOTE, triggers=cron("*/10 * * * *", timezone="Europe/Prague"))
    [trigger] = (await workshop.request("GET", "/triggers"))["triggers"]
    assert (trigger["function"], trigger["event"], trigger["agent"]) == ("nightly", "schedule", None)
    assert len(trigger["next_times"]) == 5
    await workshop.advance(600)
    await workshop.advance()
    request = await read_key(workshop, "seen")
    assert (request["type"], request["user"], request["body"]["type"]) == ("cron", None, "cron")
    assert (request["body"]["schedule"], request["body"]["timezone"]) == ("*/10 * * * *", "Europe/Prague")
    assert request["body"]["scheduled_at"]
    assert await read_key(workshop, "count") == 1
    [delivery] = (await workshop.request("GET", f"/triggers/{trigger['name']}/deliveries"))["deliveries"]
    assert (delivery["status"], delivery["answer_status"], delivery["id"]) == ("delivered", 200, request["id"])
    [row] = await workshop.list_logs("nightly")
    assert (row["trigger"], row["request_id"]) == ("cron", request["id"])


async def test_another_deployment_moves_no_hour_and_one_without_cron_ends_it(workshop: Workshop) -> None:
    await workshop.deploy("nightly", NOTE, triggers=cron())
    [before] = (await workshop.request("GET", "/triggers"))["triggers"]
    await workshop.request("POST", f"/triggers/{before['name']}/pause")
    await workshop.deploy("nightly", NOTE + "\n", triggers=cron())
    [after] = (await workshop.request("GET", "/triggers"))["triggers"]
    assert (after["status"], after["created_at"]) == ("paused", before["created_at"])
    path = f"/triggers/{before['name']}"
    refusal = await workshop.request("DELETE", path, 409)
    assert refusal["error"]["code"] == "TRIGGER_OF_FUNCTION"
    body = {"event": "custom.x", "webhook": "https://a.example/"}
    assert (await workshop.request("PUT", path, 400, json=body))["error"]["code"] == "TRIGGER_INVALID"
    await workshop.deploy("nightly", NOTE, triggers=http())
    assert (await workshop.request("GET", "/triggers"))["triggers"] == []


async def test_a_tick_that_fails_is_told_and_not_repeated(workshop: Workshop) -> None:
    await workshop.deploy("nightly", "export default () => { throw new Error('no') }", triggers=cron("*/10 * * * *"))
    await workshop.advance(600)
    await workshop.advance(60)
    [trigger] = (await workshop.request("GET", "/triggers"))["triggers"]
    [delivery] = (await workshop.request("GET", f"/triggers/{trigger['name']}/deliveries"))["deliveries"]
    assert (delivery["status"], delivery["attempts"], delivery["answer_status"]) == ("failed", 1, 500)
    assert (trigger["failures"], len(await workshop.list_logs("nightly"))) == (1, 1)


async def test_a_tick_is_left_out_while_the_one_before_has_not_ended(workshop: Workshop) -> None:
    await workshop.deploy("nightly", WAIT, triggers=cron("* * * * *"))
    # Late in a minute, so that the next one begins soon: a job is taken over when its worker has not been heard of.
    workshop.clock.advance(116 - workshop.clock.time() % 60)
    await jobs.run_job(workshop.application, "triggers_tick")
    await wait_for_call(workshop)
    workshop.clock.advance(5)
    await jobs.run_job(workshop.application, "triggers_tick")
    await workshop.send("PUT", "/kv/go", json={"value": True})
    await jobs.run_due_jobs(workshop.application)
    [trigger] = (await workshop.request("GET", "/triggers"))["triggers"]
    deliveries = (await workshop.request("GET", f"/triggers/{trigger['name']}/deliveries"))["deliveries"]
    assert [each["status"] for each in deliveries] == ["skipped", "delivered"]
    assert "has not ended" in deliveries[0]["error"]
    assert await read_key(workshop, "count") == 1


async def test_hours_of_a_paused_app_start_nothing(workshop: Workshop) -> None:
    await workshop.deploy("nightly", NOTE, triggers=cron("* * * * *"))
    await workshop.request("PATCH", "/config/pause", json={"paused": True})
    await workshop.advance(120)
    assert await workshop.list_logs("nightly") == []


async def store_file(workshop: Workshop, filename: str, content_type: str) -> None:
    body = {"filename": filename, "contentType": content_type, "content": "x"}
    answer = await workshop.client.post(f"/storage/{workshop.app}/objects", json=body, headers=workshop.owner)
    assert answer.status_code in (200, 201), answer.text


async def test_an_upload_that_fits_starts_a_function_once(workshop: Workshop) -> None:
    config = {"prefix": "in/", "contentTypes": ["image/*", "text/plain"]}
    await workshop.deploy("resize", NOTE, triggers=[{"type": "storage_upload", "config": config}])
    await store_file(workshop, "out/a.png", "image/png")
    await store_file(workshop, "in/b.pdf", "application/pdf")
    await workshop.advance(5)
    assert await read_key(workshop, "count") is None
    await store_file(workshop, "in/c.txt", "text/plain; charset=utf-8")
    await workshop.advance(5)
    await workshop.advance(60)
    request = await read_key(workshop, "seen")
    assert (request["type"], await read_key(workshop, "count")) == ("storage_upload", 1)
    assert {
        "type",
        "bucket",
        "key",
        "object_id",
        "filename",
        "content_type",
        "size_bytes",
        "user_id",
        "created_at",
    } == {*request["body"]}
    assert (request["body"]["bucket"], request["body"]["filename"], request["body"]["size_bytes"]) == (
        "default",
        "in/c.txt",
        1,
    )


async def test_an_upload_that_causes_itself_ends_as_a_loop(workshop: Workshop) -> None:
    code = """
    export default async (req, ctx) => {
      await ctx.storage.put(`in/${await ctx.kv.incr("count")}.txt`, "more");
      return new Response("ok");
    }
    """
    await workshop.deploy("loop", code, triggers=[{"type": "storage_upload", "config": {"prefix": "in/"}}])
    await store_file(workshop, "in/first.txt", "text/plain")
    for _ in range(12):
        await workshop.advance(5)
    [trigger] = (await workshop.request("GET", "/triggers"))["triggers"]
    deliveries = (await workshop.request("GET", f"/triggers/{trigger['name']}/deliveries"))["deliveries"]
    assert [each["status"] for each in deliveries] == ["skipped", *["delivered"] * 5]


def sign_for_stripe(secret: str, body: bytes, at: int) -> dict[str, str]:
    signature = hmac.new(secret.encode(), f"{at}.".encode() + body, sha256).hexdigest()
    return {"stripe-signature": f"t={at},v1={signature}"}


async def deliver(workshop: Workshop, body: bytes, headers: dict[str, str], name: str = "hook") -> httpx.Response:
    return await workshop.send("POST", f"/webhook/{name}", content=body, headers=headers)


def webhook(**config: Any) -> list[dict[str, Any]]:
    return [{"type": "webhook", "config": config}]


async def test_a_stripe_webhook_that_comes_five_times_runs_once(workshop: Workshop) -> None:
    answer = await workshop.deploy("hook", NOTE, triggers=webhook(provider="stripe", secret="whsec_1"))
    assert (answer["url"], answer["webhook_secret"]) == (None, None)
    assert answer["webhook_url"].endswith(f"/v1/{workshop.app}/webhook/hook")
    body = json.dumps({"id": "evt_1", "type": "invoice.paid"}).encode()
    headers = sign_for_stripe("whsec_1", body, int(workshop.clock.time()))
    first = await deliver(workshop, body, headers)
    assert (first.status_code, first.json()["body"], first.json()["type"]) == (200, json.loads(body), "webhook")
    await workshop.settle()
    for _ in range(4):
        workshop.clock.advance(60)
        headers = sign_for_stripe("whsec_1", body, int(workshop.clock.time()))
        again = await deliver(workshop, body, headers)
        assert (again.status_code, again.json()) == (200, {"ok": True, "duplicate": True})
        assert again.headers["x-platform-duplicate"] == "true"
    assert await read_key(workshop, "count") == 1
    [delivery] = (await workshop.request("GET", "/functions/hook/webhooks"))["deliveries"]
    assert (delivery["status"], delivery["duplicates"], delivery["id"]) == ("completed", 4, first.json()["id"])
    workshop.clock.advance(90_000)
    headers = sign_for_stripe("whsec_1", body, int(workshop.clock.time()))
    assert (await deliver(workshop, body, headers)).json()["id"] != first.json()["id"]


@pytest.mark.parametrize(
    ("config", "make_headers"),
    [
        ({"provider": "stripe"}, sign_for_stripe),
        (
            {"provider": "github"},
            lambda secret, body, at: {
                "x-hub-signature-256": "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()
            },
        ),
        (
            {"provider": "custom", "signature_header": "X-Shop-Signature"},
            lambda secret, body, at: {"x-shop-signature": hmac.new(secret.encode(), body, sha256).hexdigest()},
        ),
    ],
)
async def test_only_signed_webhooks_are_stored(workshop: Workshop, config: dict[str, Any], make_headers: Any) -> None:
    await workshop.deploy("hook", NOTE, triggers=webhook(secret="the secret", **config))
    at, body = int(workshop.clock.time()), b'{"id": "1"}'
    wrong_headers = [{}, make_headers("another", body, at), make_headers("the secret", b'{"id": "2"}', at)]
    if config["provider"] == "stripe":
        wrong_headers.append(make_headers("the secret", body, at - 301))
    for headers in wrong_headers:
        refusal = await deliver(workshop, body, headers)
        assert (refusal.status_code, refusal.json()["error"]) == (401, "signature verification failed")
    assert (await workshop.request("GET", "/functions/hook/webhooks"))["deliveries"] == []
    assert (await deliver(workshop, body, make_headers("the secret", body, at))).status_code == 200


async def test_a_generated_secret_is_shown_once_and_signs_in_two_ways(workshop: Workshop) -> None:
    secret = (await workshop.deploy("hook", NOTE, triggers=webhook()))["webhook_secret"]
    assert secret.startswith("whsec_")
    assert (await workshop.deploy("hook", NOTE, triggers=webhook()))["webhook_secret"] is None
    function = await workshop.request("GET", "/functions/hook")
    assert secret not in json.dumps(function)
    body = b'{"n": 1}'
    digest = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), body, sha256).digest()
    own = {"x-bb-signature": "v1," + base64.b64encode(digest).decode()}
    assert (await deliver(workshop, body, own)).status_code == 200
    assert (await deliver(workshop, b'{"n": 2}', own)).status_code == 401
    standard = build_headers("msg_1", workshop.clock.now(), b'{"n": 2}', [secret])
    assert (await deliver(workshop, b'{"n": 2}', standard)).json()["body"] == {"n": 2}


async def test_a_webhook_that_failed_runs_again_with_the_same_id(workshop: Workshop) -> None:
    await workshop.deploy("hook", NOTE, triggers=webhook(secret_required=False, idempotency_key_header="X-Id"))
    failure = await deliver(workshop, b'{"fails": true}', {"x-id": "7"})
    assert failure.status_code == 500
    first_id = (await read_key(workshop, "seen"))["id"]
    again = await deliver(workshop, b'{"fails": false}', {"x-id": "7"})
    assert (again.status_code, (await read_key(workshop, "seen"))["id"]) == (500, first_id)
    [delivery] = (await workshop.request("GET", "/functions/hook/webhooks"))["deliveries"]
    assert (delivery["status"], delivery["attempts"]) == ("failed", 2)


async def test_a_second_delivery_waits_for_the_first(workshop: Workshop) -> None:
    await workshop.deploy("hook", WAIT, triggers=webhook(secret_required=False))
    both = [asyncio.ensure_future(deliver(workshop, b"{}", {})) for _ in range(2)]
    await wait_for_call(workshop)
    await workshop.send("PUT", "/kv/go", json={"value": True})
    answers = await asyncio.gather(*both)
    assert sorted(answer.text for answer in answers) == ["done", '{"ok":true,"duplicate":true}']
    assert await read_key(workshop, "count") == 1


async def test_a_webhook_whose_worker_was_lost_runs_again_and_repeats_no_step(workshop: Workshop) -> None:
    code = """
    export default async (req, ctx) => {
      await ctx.step("count", () => ctx.kv.incr("count"));
      await ctx.kv.set("id", ctx.request.id);
      if (await ctx.kv.incr("runs") === 1) throw new Error("lost");
      return new Response("ok");
    }
    """
    await workshop.deploy("hook", code, timeoutMs=1000, triggers=webhook(secret_required=False))
    await deliver(workshop, b"{}", {})
    # As a worker leaves it that is killed.
    database = workshop.application.services.stores_of("local").database
    async with database.writing(lock=None) as connection:
        values = {"status": "running", "runs_until": workshop.clock.now(), "ended_at": None}
        await connection.execute(webhook_deliveries.update().values(**values))
    first_id = await read_key(workshop, "id")
    workshop.clock.advance(60)
    await jobs.run_due_jobs(workshop.application)
    [delivery] = (await workshop.request("GET", "/functions/hook/webhooks"))["deliveries"]
    assert (delivery["status"], delivery["attempts"], delivery["answer_status"]) == ("completed", 2, 200)
    assert (await read_key(workshop, "id"), await read_key(workshop, "count")) == (first_id, 1)
    again = await deliver(workshop, b"{}", {})
    assert again.json() == {"ok": True, "duplicate": True}


async def test_a_webhook_has_ended_when_what_goes_on_after_its_answer_has(workshop: Workshop) -> None:
    code = """
    export default (req, ctx) => {
      ctx.waitUntil((async () => {
        while (!(await ctx.kv.get("go"))) await new Promise((done) => setTimeout(done, 20));
        await ctx.kv.incr("count");
      })());
      return new Response("ok");
    }
    """
    await workshop.deploy("hook", code, triggers=webhook(secret_required=False))
    assert (await deliver(workshop, b"{}", {})).text == "ok"
    assert (await deliver(workshop, b"{}", {})).json() == {"ok": True, "duplicate": True}
    [delivery] = (await workshop.request("GET", "/functions/hook/webhooks"))["deliveries"]
    assert (delivery["status"], delivery["answer_status"], delivery["duplicates"]) == ("running", 200, 1)
    await workshop.send("PUT", "/kv/go", json={"value": True})
    await workshop.settle()
    [delivery] = (await workshop.request("GET", "/functions/hook/webhooks"))["deliveries"]
    assert (delivery["status"], await read_key(workshop, "count")) == ("completed", 1)


async def test_the_hook_of_an_app_is_called_once_for_each_sign_in(workshop: Workshop) -> None:
    body = {"post_auth_function": "welcome"}
    refusal = await workshop.request("PATCH", "/config/auth-hooks", 400, json=body)
    assert "welcome" in refusal["error"]["message"]
    await workshop.deploy("welcome", NOTE, triggers=[])
    answer = await workshop.request("PATCH", "/config/auth-hooks", json=body)
    assert answer["auth_hook_function"] == "welcome"
    user = {"email": "ada@example.com", "password": "correct Horse 7!"}
    signed_up = await workshop.client.post(f"/auth/{workshop.app}/signup", json=user)
    assert signed_up.status_code == 201
    await workshop.advance(5)
    request = await read_key(workshop, "seen")
    assert (request["body"]["user"]["email"], request["user"], request["type"]) == (
        "ada@example.com",
        None,
        "auth_hook",
    )
    [call] = (await workshop.request("GET", "/auth/hook-calls"))["calls"]
    assert (call["status"], call["id"]) == ("succeeded", request["id"])
    await workshop.advance(60)
    assert await read_key(workshop, "count") == 1


async def test_postgrest_clients_call_functions_as_rpc(workshop: Workshop) -> None:
    await workshop.deploy("add", "export default async (req) => Response.json((await req.json()).a + 1)")
    user = await make_user(workshop)
    answer = await workshop.send("POST", "/data/rpc/add", json={"a": 1}, headers=user)
    assert (answer.status_code, answer.json()) == (200, 2)
    assert (await workshop.send("POST", "/data/rpc/add", json={"a": 1}, headers={})).status_code == 401
    assert (await workshop.send("POST", "/data/rpc/none", json={}, headers=user)).status_code == 404
