"""/v1/{app_id}/fn/{name}: calls of functions by everybody whom their triggers admit; and test calls."""

from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import Field, StringConstraints, WithJsonSchema

from baobab.tools.core import Anonymous, AppId, AppOwner, Audit, Call, Caller, EndUser, Rest, Uuid
from baobab.tools.core.errors import AppPaused
from baobab.tools.core.own_door import HOPS
from baobab.tools.core.stream import Body, Stream
from baobab.tools.core.types import Json
from baobab.tools.functions.access import AS_TRIGGER_SAYS
from baobab.tools.functions.answering import build_request, build_stream, choose_status, read_subpath
from baobab.tools.functions.errors import (
    FunctionNotFound,
    FunctionsFull,
    ImpersonationDisabled,
    InvocationsExhausted,
    MethodRefused,
    PublicNotFound,
    RuntimeAway,
    SignInRequired,
    TooDeep,
)
from baobab.tools.functions.identity import act_as_user, identify
from baobab.tools.functions.invoking import (
    Answer,
    Invocation,
    build_json_request,
    find_function,
    invoke,
    read_body,
)
from baobab.tools.functions.live import FunctionCache
from baobab.tools.functions.schemas import Headers, Invoked, InvokeMethod, Name
from baobab.tools.functions.toolset import function_calls, functions
from baobab.tools.functions.trigger_configs import find_trigger

CALLING = (
    PublicNotFound,
    MethodRefused,
    SignInRequired,
    ImpersonationDisabled,
    AppPaused,
    InvocationsExhausted,
    FunctionsFull,
    RuntimeAway,
    TooDeep,
)
AUDIT = Audit("function.invoke", category="function", action="invoke", resource="function", tallied=True)
_MOST_ANSWER = 2**20
_VERSION = "@"
"""Between a function's name and the number of a version, in the address of a preview."""
FunctionPath = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2000),
    Field(description="The function's name, and what it gets as the rest of the path.", examples=["hello"]),
]
RawAnswer = Annotated[Any, WithJsonSchema({"type": "string", "format": "binary"})]
PASSED_ON: dict[str, Any] = {
    "status": choose_status,
    "statuses": (200,),
    "media_type": "application/octet-stream",
    "raw_body": "content",
    "verbatim": True,
}
"""The options of a tool for REST that passes requests and answers on."""
_REST = Rest(**PASSED_ON)


@function_calls.tool(
    "GET /fn/{name:path}", access=AS_TRIGGER_SAYS, effect="external", raises=CALLING, audit=AUDIT, rest=_REST
)
async def fn_get(call: Call, app_id: AppId, name: FunctionPath, content: Body) -> RawAnswer:
    """Call a function with GET. The answer is the function's own; so it is with the other methods.

    Whoever runs the app previews a version that is not live at `/fn/{name}@{number}`.

    content: the body of the request, if it has one.
    """
    return await _call(call, name, content)


@function_calls.tool(
    "POST /fn/{name:path}", access=AS_TRIGGER_SAYS, effect="external", raises=CALLING, audit=AUDIT, rest=_REST
)
async def fn_post(call: Call, app_id: AppId, name: FunctionPath, content: Body) -> RawAnswer:
    """Call a function with POST. The answer is the function's own.

    content: the body of the request.
    """
    return await _call(call, name, content)


@function_calls.tool(
    "PUT /fn/{name:path}", access=AS_TRIGGER_SAYS, effect="external", raises=CALLING, audit=AUDIT, rest=_REST
)
async def fn_put(call: Call, app_id: AppId, name: FunctionPath, content: Body) -> RawAnswer:
    """Call a function with PUT. The answer is the function's own.

    content: the body of the request.
    """
    return await _call(call, name, content)


@function_calls.tool(
    "PATCH /fn/{name:path}", access=AS_TRIGGER_SAYS, effect="external", raises=CALLING, audit=AUDIT, rest=_REST
)
async def fn_patch(call: Call, app_id: AppId, name: FunctionPath, content: Body) -> RawAnswer:
    """Call a function with PATCH. The answer is the function's own.

    content: the body of the request.
    """
    return await _call(call, name, content)


@function_calls.tool(
    "DELETE /fn/{name:path}", access=AS_TRIGGER_SAYS, effect="external", raises=CALLING, audit=AUDIT, rest=_REST
)
async def fn_delete(call: Call, app_id: AppId, name: FunctionPath, content: Body) -> RawAnswer:
    """Call a function with DELETE. The answer is the function's own.

    content: the body of the request, if it has one.
    """
    return await _call(call, name, content)


async def _call(call: Call, path: str, content: Body) -> Stream:
    services, app, http = call.services, call.require_app(), call.context.http
    assert http is not None
    name, subpath = read_subpath(path)
    name, _, number = name.partition(_VERSION)
    _, row = await find_function(services, app.id, name)
    config = find_trigger(row.triggers, "http")
    if config is None:
        raise PublicNotFound(f"The function {name} has no http trigger.")
    if config["path"] and subpath != config["path"] and not subpath.startswith(f"{config['path']}/"):
        raise PublicNotFound(f"The http trigger of {name} takes paths that begin with {config['path']}.")
    method = call.context.method
    if config["method"] is not None and method != config["method"] and (method, config["method"]) != ("HEAD", "GET"):
        raise MethodRefused(f"The function {name} takes {config['method']}.", headers={"allow": config["method"]})
    if isinstance(call.caller, Anonymous) and config["auth"] == "required":
        raise http.refusal or SignInRequired
    if isinstance(call.caller, EndUser) and call.caller.key_id and not row.allow_service_key_impersonation:
        raise ImpersonationDisabled
    identity = identify(app, row.id, call.caller, http.authorization)
    version = _read_number(number) if number else None
    if version is not None and not identity.runs_app:
        raise PublicNotFound("Versions that are not live are for those who run the app.")
    call.audit.resource_id = row.id
    answer = await invoke(
        Invocation(
            registry=call.registry,
            services=services,
            app=app,
            name=name,
            request=build_request(call, content),
            identity=identity,
            trigger="http",
            id=services.ids.uuid(),
            request_id=call.context.request_id,
            path=call.context.path,
            ip=call.context.ip,
            number=version,
            hops=HOPS.get(),
        )
    )
    return build_stream(call, answer)


def _read_number(text: str) -> int:
    """Returns the number of a version. Raises PublicNotFound."""
    if not text.isascii() or not text.isdigit() or not 0 < len(text) < 10 or int(text) == 0:
        raise PublicNotFound("A preview is at the name of the function, `@`, and the number of a version.")
    return int(text)


@functions.tool(
    "POST /functions/{name}/invoke",
    access=AppOwner(),
    effect="external",
    raises=(FunctionNotFound, *CALLING),
    audit=AUDIT,
    taints=True,
    rest=Rest(status=choose_status, statuses=(200,), body="body", examples={"body": {"name": "Ada"}}),
)
async def functions_invoke(
    call: Call,
    app_id: AppId,
    name: Name,
    body: Json = None,
    method: InvokeMethod = "POST",
    headers: Headers | None = None,
    as_user: Uuid | None = None,
) -> Invoked:
    """Call a function to try it, whatever its triggers are. Over REST, the answer is the function's own.

    body: what it gets as JSON; null for nothing.
    method: of the request that it gets.
    as_user: the id of a user of the app, as whom it runs; left out, with the app's own right.
    """
    services, app = call.services, call.require_app()
    live = await services.of(FunctionCache).get(app_id)
    row = live.rows.get(name)
    if row is None:
        raise FunctionNotFound(f"The app has no function named `{name}`.")
    if as_user is not None and not row.allow_service_key_impersonation:
        raise ImpersonationDisabled
    caller: Caller = call.caller if as_user is None else act_as_user(app, row.id, as_user)
    url = f"{services.options.base_url}/v1/{app_id}/fn/{name}"
    sent_body = None if method == "GET" else body
    call.audit.resource_id = row.id
    answer = await invoke(
        Invocation(
            registry=call.registry,
            services=services,
            app=app,
            name=name,
            request=build_json_request(method, url, headers or {}, sent_body),
            # Whoever runs the app sees all of a failure, also when they try it as a user.
            identity=replace(identify(app, row.id, caller), runs_app=True),
            trigger="test",
            id=services.ids.uuid(),
            request_id=call.context.request_id,
            path=f"/v1/{app_id}/fn/{name}",
            ip=call.context.ip,
            hops=HOPS.get(),
        )
    )
    if call.context.streams:
        return cast(Invoked, build_stream(call, answer))
    return await describe_answer(answer, call.context.request_id)


async def describe_answer(answer: Answer, request_id: str) -> Invoked:
    """Returns an answer as an object, for callers that take JSON."""
    content = await answer.read(_MOST_ANSWER)
    headers = {name.lower(): value for name, value in answer.headers}
    body: Any = f"The answer has more than {_MOST_ANSWER} bytes."
    if content is not None:
        body = read_body(content, headers.get("content-type", ""))
    return {"status": answer.status, "headers": headers, "body": body, "request_id": request_id}
