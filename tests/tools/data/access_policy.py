"""The callers that may call the tools of data, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ADMINS, RUNNERS, Caller, World

# A policy opens the table to users; visitors have none.
USERS = "401 403 403 ok  401 ok  403 403 ok  ok  ok  ok  403 403"

POLICY = {
    "data_list": USERS,
    "data_get": USERS,
    "data_explain": RUNNERS,
    "data_insert": USERS,
    "data_batch": USERS,
    "data_sql": USERS,
    "data_export": USERS,
    "data_import": RUNNERS,
    "data_update": USERS,
    "data_update_many": USERS,
    "data_delete": USERS,
    "data_delete_many": USERS,
    "schema_get": RUNNERS,
    "schema_describe": RUNNERS,
    "schema_apply": ADMINS,
    "schema_migrations": RUNNERS,
    "schema_own_text": ADMINS,
    "rls_enable": ADMINS,
    "rls_create_policy": ADMINS,
    "rls_update_policy": ADMINS,
    "rls_isolate": ADMINS,
    "rls_list": RUNNERS,
    "rls_disable": ADMINS,
    "rls_drop_policy": ADMINS,
    "rls_simulate": RUNNERS,
    "data_changes": RUNNERS,
    "data_undo": ADMINS,
    # Over HTTP everybody is told to open a WebSocket; tests/tools/data/test_realtime.py shows who gets in there.
    "realtime_open": " ".join(["ok"] * 14),
    "realtime_changes": USERS,
    "realtime_configure": ADMINS,
    "realtime_get": RUNNERS,
    "realtime_disable": ADMINS,
    "realtime_broadcast": RUNNERS,
    "realtime_channels_replace": ADMINS,
    "realtime_channels_list": RUNNERS,
}

_COLUMNS = {"id": {"type": "serial", "primaryKey": True}, "title": "text", "user_id": "uuid"}


async def _make_row(world: World) -> dict[str, Any]:
    """The table `posts` with a policy that opens it to users, and a row in it."""
    base, headers = f"/v1/{world.app}", world.owner.headers
    schema = {"tables": {"posts": {"columns": _COLUMNS}}}
    await world.request("POST", f"{base}/schema/apply", headers, schema=schema)
    policy = {"table_name": "posts", "policy_name": "open", "role": "user", "using_expression": "true"}
    await world.request("POST", f"{base}/rls/policies", headers, **policy)
    row = await world.request("POST", f"{base}/posts", headers, title="Hello")
    return {"app_id": world.app, "table": "posts", "row_id": str(row["id"])}


async def _make_table(world: World) -> dict[str, Any]:
    row = await _make_row(world)
    return {"app_id": row["app_id"], "table": row["table"]}


async def for_data_list(world: World, caller: Caller) -> dict[str, Any]:
    return await _make_table(world)


for_data_explain = for_data_list


async def for_data_get(world: World, caller: Caller) -> dict[str, Any]:
    return await _make_row(world)


async def for_data_insert(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_table(world), "values": {"title": "Hello"}}


for_data_export = for_data_list


async def for_data_import(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_table(world), "content": "title\nHello\n"}


async def for_data_batch(world: World, caller: Caller) -> dict[str, Any]:
    table = await _make_table(world)
    return {"app_id": table["app_id"], "writes": [{"op": "insert", "table": "posts", "values": {"title": "Hello"}}]}


async def for_data_sql(world: World, caller: Caller) -> dict[str, Any]:
    table = await _make_table(world)
    return {"app_id": table["app_id"], "sql": "update posts set title = 'x' where id = 0"}


async def for_data_update(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_row(world), "changes": {"title": "Hello"}}


async def for_data_update_many(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_table(world), "changes": {"title": "x"}, "where": {"title": "eq.Hello"}}


async def for_data_delete(world: World, caller: Caller) -> dict[str, Any]:
    return await _make_row(world)


async def for_data_delete_many(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_table(world), "where": {"title": "eq.Hello"}}


async def for_schema_describe(world: World, caller: Caller) -> dict[str, Any]:
    return await _make_table(world)


async def for_schema_own_text(world: World, caller: Caller) -> dict[str, Any]:
    # The table is open to users, so nobody may mark it.
    return {**await _make_table(world), "own": False}


async def for_schema_apply(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "schema": {"tables": {"posts": {"columns": _COLUMNS}}}}


async def for_rls_enable(world: World, caller: Caller) -> dict[str, Any]:
    await _make_row(world)
    return {"app_id": world.app, "table_name": "posts"}


for_rls_disable = for_rls_enable


async def for_rls_create_policy(world: World, caller: Caller) -> dict[str, Any]:
    await _make_row(world)
    return {"app_id": world.app, "table_name": "posts", "policy_name": "own", "using_expression": "true"}


async def for_rls_update_policy(world: World, caller: Caller) -> dict[str, Any]:
    await _make_row(world)
    return {"app_id": world.app, "table_name": "posts", "policy_name": "open", "using_expression": "true"}


async def for_rls_isolate(world: World, caller: Caller) -> dict[str, Any]:
    await _make_row(world)
    return {"app_id": world.app, "table_name": "posts", "user_column": "user_id"}


async def for_rls_drop_policy(world: World, caller: Caller) -> dict[str, Any]:
    await _make_row(world)
    return {"app_id": world.app, "table_name": "posts", "policy_name": "open"}


async def for_realtime_changes(world: World, caller: Caller) -> dict[str, Any]:
    table = await _make_table(world)
    await world.request("POST", f"/v1/{world.app}/realtime/configure", world.owner.headers, tables=["posts"])
    return table


async def for_realtime_configure(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": (await _make_table(world))["app_id"], "tables": ["posts"]}


for_realtime_disable = for_data_list


async def for_realtime_channels_replace(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "rules": [{"pattern": "room:**", "join": "public", "send": "authed"}]}


async def for_realtime_broadcast(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "channel": "room", "event": "wave"}


async def for_data_undo(world: World, caller: Caller) -> dict[str, Any]:
    row = await _make_row(world)
    response = await world.request("GET", f"/v1/{world.app}/data-changes", world.owner.headers)
    return {"app_id": row["app_id"], "action_id": response["changes"][0]["action_id"]}


async def for_rls_simulate(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_table(world), "viewers": ["anon"]}
