"""The callers that may call the tools of kv, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import KV_ADMINS, KV_OPERATORS, KV_ROTATERS, KV_UNEXPOSED, Caller, World

POLICY = {
    "kv_expose_list": KV_OPERATORS,
    "kv_expose": KV_ADMINS,
    "kv_expose_replace": KV_ADMINS,
    "kv_unexpose": KV_ADMINS,
    "kv_own_text_list": KV_OPERATORS,
    "kv_own_text": KV_ROTATERS,
    "kv_scan": KV_OPERATORS,
    "kv_stats": KV_OPERATORS,
    "kv_flush": KV_ADMINS,
    "kv_audit_recent": "401 403 403 ok  401 ok  403 ok  ok  ok  ok  ok  403 403",
    "kv_rotate_key": KV_ROTATERS,
    "kv_get": KV_UNEXPOSED,
    "kv_ttl": KV_UNEXPOSED,
    "kv_exists": KV_UNEXPOSED,
    "kv_put": KV_UNEXPOSED,
    "kv_delete": KV_UNEXPOSED,
    "kv_incr": KV_UNEXPOSED,
    "kv_decr": KV_UNEXPOSED,
    "kv_setnx": KV_UNEXPOSED,
    "kv_cas": KV_UNEXPOSED,
    "kv_expire": KV_UNEXPOSED,
    # Each operation of a batch is allowed or refused by itself.
    "kv_batch": "ok  403 403 ok  401 ok  403 ok  ok  ok  ok  ok  403 403",
}


async def for_kv_rotate_key(world: World, caller: Caller) -> dict[str, Any]:
    # Whoever may has just made the one that is in use void.
    response = await world.request("POST", f"/v1/{world.app}/kv/_rotate_key", world.owner.headers)
    world.callers["function key"].headers = {"authorization": f"Bearer {response['function_key']}"}
    return {"app_id": world.app}
