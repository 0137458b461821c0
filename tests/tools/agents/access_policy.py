"""The callers that may call the tools of agents, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.jobs import run_due_jobs
from tests.tools.access import ADMINS, AI, INTERNAL, PUBLIC, RUNNERS, Caller, World

ASKING: dict[str, Any] = {
    "spec_version": 1,
    "entry": "ask",
    "nodes": {
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "Go on?"},
        },
        "done": {"type": "end"},
    },
    "edges": [{"from": "ask", "to": "done"}],
    "tools": {"builtin": ["interrupt"]},
}

POLICY = {
    "agents_list": RUNNERS,
    "agents_get": RUNNERS,
    "agents_create": ADMINS,
    "agents_update": ADMINS,
    "agents_delete": ADMINS,
    "agents_validate": RUNNERS,
    "agents_runs_delete": ADMINS,
    "agents_runs_webhook": RUNNERS,
    "agents_webhook_secret_rotate": ADMINS,
    "agents_webhook_secret_get": RUNNERS,
    "agents_threads_delete": ADMINS,
    "agents_threads_list": AI,
    "agents_users_erase": ADMINS,
    "agents_run": AI,
    "agents_runs_list": AI,
    "agents_runs_get": AI,
    "agents_runs_cancel": AI,
    "agents_runs_resume": AI,
    "agents_runs_fork": AI,
    "agents_runs_events": AI,
    "agents_runs_events_list": AI,
    "agents_runs_model_calls": RUNNERS,
    # Anonymous callers of these show the app's anon key; here they come with nothing.
    "agents_public_run": AI,
    "agents_public_get": AI,
    "agents_public_cancel": AI,
    "agents_public_resume": AI,
    "agents_public_events_list": AI,
    "agents_public_stream_token": AI,
    # The token in the query opens them, whoever shows it.
    "agents_public_events": PUBLIC,
    "agents_public_socket": PUBLIC,
    # It does nothing: a run that calls it waits for a person.
    "interrupt": PUBLIC,
    "mcp_servers_list": RUNNERS,
    "mcp_servers_create": ADMINS,
    "mcp_servers_probe": ADMINS,
    "mcp_servers_delete": ADMINS,
    # Only a run of an agent calls it.
    "mcp_servers_call": INTERNAL,
}


async def for_agents_create(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": world.new_name("agent"), "graph_spec": ASKING}


async def for_agents_update(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world), "status": "disabled"}


async def for_agents_get(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world)}


async def for_agents_delete(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world)}


async def for_agents_runs_delete(world: World, caller: Caller) -> dict[str, Any]:
    run = await start_run(world, caller)
    await get_token(world, run)
    await world.request("POST", f"/v1/{world.app}/agents/{run['name']}/runs/{run['id']}/cancel", world.owner.headers)
    return run


async def for_agents_runs_webhook(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller)


async def for_agents_webhook_secret_rotate(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app}


async def for_agents_webhook_secret_get(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app}


async def for_agents_threads_delete(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world), "thread_id": "t"}


async def for_agents_users_erase(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "user_id": "nobody"}


async def for_agents_validate(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": "any", "graph_spec": ASKING}


async def for_agents_run(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world), "input": {}}


async def for_agents_runs_list(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world)}


async def for_agents_threads_list(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world)}


async def for_agents_runs_get(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller)


async def for_agents_runs_cancel(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller)


async def for_agents_runs_events_list(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller)


async def for_agents_runs_model_calls(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller)


async def for_agents_runs_events(world: World, caller: Caller) -> dict[str, Any]:
    run = await start_run(world, caller)
    await world.request("POST", f"/v1/{world.app}/agents/{run['name']}/runs/{run['id']}/cancel", world.owner.headers)
    return run


async def for_agents_runs_resume(world: World, caller: Caller) -> dict[str, Any]:
    run = await start_run(world, caller)
    return {**run, "approved": True, "approval_token": await get_token(world, run)}


async def for_agents_runs_fork(world: World, caller: Caller) -> dict[str, Any]:
    run = await start_run(world, caller)
    # It waits: by then it has begun.
    await get_token(world, run)
    return run


async def for_agents_public_run(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": await create_agent(world), "input": {}}


async def for_agents_public_get(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller, with_name=False)


async def for_agents_public_cancel(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller, with_name=False)


async def for_agents_public_events_list(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller, with_name=False)


async def for_agents_public_stream_token(world: World, caller: Caller) -> dict[str, Any]:
    return await start_run(world, caller, with_name=False)


async def for_mcp_servers_create(world: World, caller: Caller) -> dict[str, Any]:
    # No machine, and no name to ask anybody for.
    return {"app_id": world.app, "name": world.new_name("tools"), "url": "http://192.0.2.1.invalid/mcp"}


async def for_mcp_servers_probe(world: World, caller: Caller) -> dict[str, Any]:
    path, server = f"/v1/{world.app}/mcp-servers", await for_mcp_servers_create(world, caller)
    response = await world.request("POST", path, world.owner.headers, name=server["name"], url=server["url"])
    return {"app_id": world.app, "id": response["mcp_server"]["id"]}


async def for_mcp_servers_delete(world: World, caller: Caller) -> dict[str, Any]:
    return await for_mcp_servers_probe(world, caller)


async def for_mcp_servers_call(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "server_id": "nowhere", "tool": "search", "digest": "0" * 32, "arguments": {}}


async def for_agents_public_resume(world: World, caller: Caller) -> dict[str, Any]:
    run = await start_run(world, caller)
    token = await get_token(world, run)
    return {"app_id": world.app, "id": run["id"], "approved": True, "approval_token": token}


async def for_agents_public_events(world: World, caller: Caller) -> dict[str, Any]:
    app = await world.baobab.application.services.directory.app(world.app)
    anon, name = {"apikey": app.anon_key}, await create_agent(world)
    path = f"/v1/{world.app}/public"
    response = await world.request("POST", f"{path}/agents/{name}/runs", anon, input={})
    await world.request("POST", f"{path}/runs/{response['run_id']}/cancel", anon)
    return {"app_id": world.app, "id": response["run_id"], "token": response["stream_token"]}


async def for_agents_public_socket(world: World, caller: Caller) -> dict[str, Any]:
    return await for_agents_public_events(world, caller)


async def for_interrupt(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "reason": "Go on?"}


async def create_agent(world: World) -> str:
    """An agent that anybody may run, and that asks before it ends."""
    name = world.new_name("agent")
    arguments = {"name": name, "graph_spec": ASKING, "visibility": "public", "safety_acknowledged": True}
    await world.request("POST", f"/v1/{world.app}/agents", world.owner.headers, **arguments)
    return name


async def start_run(world: World, caller: Caller, *, with_name: bool = True) -> dict[str, Any]:
    """A run of the caller's own, where it may have one, that waits for a decision or soon will."""
    name = await create_agent(world)
    path = f"/v1/{world.app}/agents/{name}/runs"
    answer = await caller.client.post(path, json={"input": {}}, headers=caller.headers)
    run_body = answer.json() if answer.is_success else await world.request("POST", path, world.owner.headers, input={})
    run = {"app_id": world.app, "id": run_body["run_id"]}
    return {**run, "name": name} if with_name else run


async def get_token(world: World, run: dict[str, Any]) -> str:
    await run_due_jobs(world.baobab.application)
    path = f"/v1/{world.app}/agents/{run['name']}/runs/{run['id']}/events.json"
    token: str = (await world.request("GET", path, world.owner.headers))["events"][-1]["payload"]["approval_token"]
    return token
