"""The callers that may call the tools of triggers, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ADMINS, RUNNERS, Caller, World

POLICY = {
    "triggers_list": RUNNERS,
    "triggers_get": RUNNERS,
    "triggers_set": ADMINS,
    "triggers_delete": ADMINS,
    "triggers_pause": RUNNERS,
    "triggers_resume": ADMINS,
    "triggers_test": ADMINS,
    "triggers_deliveries": RUNNERS,
    "triggers_send_again": RUNNERS,
    "triggers_events": RUNNERS,
    "triggers_follow_function": ADMINS,
    "events_emit": RUNNERS,
}


async def make_trigger(world: World) -> dict[str, Any]:
    name = world.new_name("trigger")
    body = {"event": "custom.nothing", "webhook": "https://hooks.example/one"}
    await world.request("PUT", f"/v1/{world.app}/triggers/{name}", world.owner.headers, **body)
    return {"app_id": world.app, "name": name}


async def for_triggers_set(world: World, caller: Caller) -> dict[str, Any]:
    return {**await make_trigger(world), "event": "custom.nothing", "webhook": "https://hooks.example/two"}


async def for_triggers_get(world: World, caller: Caller) -> dict[str, Any]:
    return await make_trigger(world)


async def for_triggers_send_again(world: World, caller: Caller) -> dict[str, Any]:
    arguments = await make_trigger(world)
    path = f"/v1/{world.app}/triggers/{arguments['name']}/test"
    answer = await world.request("POST", path, world.owner.headers, run=True)
    return {**arguments, "delivery_id": answer["delivery_id"]}


for_triggers_delete = for_triggers_pause = for_triggers_resume = for_triggers_get
for_triggers_test = for_triggers_deliveries = for_triggers_get


async def for_triggers_follow_function(world: World, caller: Caller) -> dict[str, Any]:
    function_id = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
    return {"app_id": world.app, "function": "hello", "function_id": function_id}
