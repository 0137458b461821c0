"""Calls of functions that the platform itself makes: for an hour, an upload, a sign-in, an event of a connection."""

from typing import Annotated, Any, Literal

from pydantic import Field

from baobab.tools.core import AppId, AppOwner, Call, EndUser, Guard, Mcp, Rest, Text
from baobab.tools.core.own_door import HOPS
from baobab.tools.core.stream import Body
from baobab.tools.core.types import Json
from baobab.tools.functions.access import AS_TRIGGER_SAYS
from baobab.tools.functions.answering import build_request, build_stream
from baobab.tools.functions.errors import ImpersonationDisabled, NoHandler, PublicNotFound, SignInRequired
from baobab.tools.functions.identity import identify, identify_platform
from baobab.tools.functions.invocations import FAILED
from baobab.tools.functions.invoking import Invocation, build_json_request, find_function, invoke, read_body
from baobab.tools.functions.live import FunctionCache
from baobab.tools.functions.schemas import Fired, Name, Payload
from baobab.tools.functions.tools.calls import AUDIT, CALLING, PASSED_ON, RawAnswer
from baobab.tools.functions.toolset import function_calls
from baobab.tools.functions.trigger_configs import find_trigger

_BAD = 400
_MOST_ANSWER = 256 * 1024
_LONGEST_ERROR = 300
RequestId = Annotated[str, Text(80, min_length=1), Field(description="The same whenever the same thing is told again.")]
TimeoutMs = Annotated[int, Field(ge=1, le=300_000)]
EventName = Annotated[str, Text(200, min_length=1)]


@function_calls.tool(
    access=AppOwner("admin"),
    effect="external",
    raises=CALLING,
    audit=AUDIT,
    limit=None,
    mcp=Mcp(offered=False),
    guard=Guard(grants=True),
)
async def functions_fire(
    call: Call,
    app_id: AppId,
    name: Name,
    trigger: Literal["cron", "storage_upload", "auth_hook"],
    payload: Payload,
    request_id: RequestId,
    timeout_ms: TimeoutMs = 300_000,
) -> Fired:
    """Call a function for what has happened, with the app's own right.

    timeout_ms: the most milliseconds that it may take, if its own timeout is longer.
    """
    services, app = call.services, call.require_app()
    _, row = await find_function(services, app_id, name)
    if trigger != "auth_hook" and find_trigger(row.triggers, trigger) is None:
        raise PublicNotFound(f"The function {name} has no trigger of the type {trigger} any more.")
    path = f"/v1/{app_id}/fn/{name}"
    call.audit.resource_id = row.id
    answer = await invoke(
        Invocation(
            registry=call.registry,
            services=services,
            app=app,
            name=name,
            request=build_json_request(
                "POST", f"{services.options.base_url}{path}", {"x-trigger-type": trigger}, payload
            ),
            identity=identify_platform(app, row.id),
            trigger=trigger,
            id=request_id[:36],
            request_id=request_id,
            path=path,
            hops=HOPS.get(),
            cause=call.context.trigger,
            timeout_ms=timeout_ms,
        )
    )
    content = await answer.read(_MOST_ANSWER)
    # The job that calls this calls it again if the server is lost before all is done.
    await answer.wait_for_end()
    content_type = dict(answer.headers).get("content-type", "")
    body = None if content is None else read_body(content, content_type)
    error = None
    if answer.status >= _BAD:
        error = f"The function answered {answer.status}"
        error += f": {str(body)[:_LONGEST_ERROR]}" if answer.status >= FAILED else "."
    return {"status": answer.status, "error": error, "body": body}


@function_calls.tool(
    access=AS_TRIGGER_SAYS,
    effect="external",
    raises=(NoHandler, *CALLING),
    audit=AUDIT,
    mcp=Mcp(offered=False),
)
async def functions_event(call: Call, app_id: AppId, event: EventName, payload: Json = None) -> Fired:
    """Call the function that handles an event which a client has sent over the app's WebSocket, for that client.

    It is the function of the event's name if that has a `websocket` trigger, else the only one that has such a trigger.
    """
    services, app = call.services, call.require_app()
    rows = (await services.of(FunctionCache).get(app_id)).find_with("websocket")
    named_rows = [row for row in rows if row.name == event] or (rows if len(rows) == 1 else [])
    if not named_rows:
        raise NoHandler(f"No handler for event: {event}")
    row = named_rows[0]
    url = f"{services.options.base_url}/v1/{app_id}/fn/{row.name}"
    call.audit.resource_id = row.id
    answer = await invoke(
        Invocation(
            registry=call.registry,
            services=services,
            app=app,
            name=row.name,
            request=build_json_request(
                "POST", url, {"x-trigger-type": "websocket"}, {"event": event, "payload": payload}
            ),
            identity=identify(app, row.id, call.caller),
            trigger="websocket",
            id=services.ids.uuid(),
            request_id=services.ids.uuid(),
            path=f"/v1/{app_id}/realtime",
            ip=call.context.ip,
        )
    )
    content = await answer.read(_MOST_ANSWER)
    if content is None:
        return {"status": answer.status, "error": "The answer of the function is too long for a frame.", "body": None}
    body = read_body(content, dict(answer.headers).get("content-type", "")) if content else None
    error = f"The function answered {answer.status}." if answer.status >= _BAD else None
    return {"status": answer.status, "error": error, "body": body}


@function_calls.tool(
    "POST /data/rpc/{name}",
    access=AS_TRIGGER_SAYS,
    effect="external",
    raises=CALLING,
    audit=AUDIT,
    rest=Rest(**PASSED_ON),
)
async def fn_rpc(call: Call, app_id: AppId, name: Name, content: Body) -> RawAnswer:
    """Call a function as clients of PostgREST call functions of a database: `rpc("hello", {name: "Ada"})`.

    content: what the function gets as JSON.
    """
    services, app, http = call.services, call.require_app(), call.context.http
    assert http is not None
    _, row = await find_function(services, app_id, name)
    config: Any = find_trigger(row.triggers, "http")
    if config is None or config["method"] not in (None, "POST"):
        raise PublicNotFound(f"The function {name} has no http trigger that takes POST.")
    if call.caller.actor == "anonymous" and config["auth"] == "required":
        raise http.refusal or SignInRequired
    if isinstance(call.caller, EndUser) and call.caller.key_id and not row.allow_service_key_impersonation:
        raise ImpersonationDisabled
    call.audit.resource_id = row.id
    answer = await invoke(
        Invocation(
            registry=call.registry,
            services=services,
            app=app,
            name=name,
            request=build_request(call, content),
            identity=identify(app, row.id, call.caller, http.authorization),
            trigger="http",
            id=services.ids.uuid(),
            request_id=call.context.request_id,
            path=call.context.path,
            ip=call.context.ip,
            hops=HOPS.get(),
        )
    )
    return build_stream(call, answer)
