"""Functions as tools of agents and MCP clients."""

from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.functions.agent_tools import FunctionTool, load_function_tools
from baobab.tools.core import (
    Anonymous,
    AppId,
    Call,
    EndUser,
    Guard,
    JsonObject,
    Mcp,
)
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.guard.wording import quote_text
from baobab.tools.functions.access import TOOL_CALLERS
from baobab.tools.functions.errors import NotATool, ToolCallFailed
from baobab.tools.functions.identity import identify
from baobab.tools.functions.invoking import Invocation, build_json_request, find_function, invoke, read_body
from baobab.tools.functions.schemas import FunctionResult, FunctionTools, Name
from baobab.tools.functions.tools.calls import AUDIT, CALLING
from baobab.tools.functions.toolset import functions

_BAD = 400
_MOST_ANSWER = 256 * 1024
_LONGEST_ERROR = 2000
Arguments = Annotated[JsonObject, Field(description="What the function gets as JSON.", examples=[{"name": "Ada"}])]


async def _list_tools(call: Call) -> dict[str, FunctionTool]:
    """Returns the functions that the caller may call as tools, by name."""
    async with call.reading() as execute:
        tools = await load_function_tools(execute, call.require_app().id)
    is_outsider = isinstance(call.caller, EndUser | Anonymous)
    return {name: tool for name, tool in tools.items() if not is_outsider or tool.exposed_to == "end_user"}


@functions.tool(access=OF_APP, effect="read")
async def functions_tools(call: Call, app_id: AppId) -> FunctionTools:
    """List the functions of an app that you may call as tools, with the schemas of their arguments.

    Those with the mode `read_only` change nothing: op:functions_read calls them. op:functions_call calls all.
    """
    tools = await _list_tools(call)
    return {
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "mode": tool.mode,
                "input_schema": dict(tool.input_schema),
            }
            for tool in tools.values()
        ]
    }


async def _get_tool(call: Call, name: str) -> FunctionTool:
    tool = (await _list_tools(call)).get(name)
    if tool is None:
        raise NotATool(f"There is no function {name[:100]} that you may call as a tool.")
    return tool


async def _preview(call: Call, app_id: AppId, name: Name, arguments: dict[str, Any] | None = None) -> str:
    del app_id, arguments
    tool = await _get_tool(call, name)
    what = "reads only" if tool.mode == "read_only" else "may change what its code changes"
    return f"It calls the function `{name}` of the app, which {what}: {tool.description}"


async def _meaning(call: Call, app_id: AppId, name: Name, arguments: dict[str, Any] | None = None) -> str:
    """Pins the code: a call that was approved is not made with another version."""
    del app_id, arguments
    return (await _get_tool(call, name)).sha256


@functions.tool(
    access=TOOL_CALLERS,
    effect="external",
    raises=(NotATool, ToolCallFailed, *CALLING),
    audit=AUDIT,
    taints=True,
    guard=Guard(
        preview=_preview,
        meaning=_meaning,
        outcome=lambda arguments: f"Call the function {quote_text(arguments.get('name'))} of the app",
    ),
)
async def functions_call(call: Call, app_id: AppId, name: Name, arguments: Arguments | None = None) -> FunctionResult:
    """Call a function of an app as a tool, as yourself. op:functions_tools lists them with their arguments.

    One whose mode is `read_write` may change anything that its code changes.

    arguments: what the function gets as JSON.
    """
    del app_id
    tool = await _get_tool(call, name)
    return await _call(call, tool, arguments)


@functions.tool(
    access=TOOL_CALLERS,
    effect="read",
    raises=(NotATool, ToolCallFailed, *CALLING),
    taints=True,
    mcp=Mcp(long_running=True),
)
async def functions_read(call: Call, app_id: AppId, name: Name, arguments: Arguments | None = None) -> FunctionResult:
    """Call a function of an app as a tool that changes nothing, because its mode is `read_only`. It asks nobody.

    arguments: what the function gets as JSON.
    """
    del app_id
    tool = await _get_tool(call, name)
    if tool.mode != "read_only":
        raise NotATool(f"The function {name} may change something: call it with op:functions_call.")
    return await _call(call, tool, arguments)


async def _call(call: Call, tool: FunctionTool, arguments: dict[str, Any] | None) -> FunctionResult:
    services, app = call.services, call.require_app()
    _, row = await find_function(services, app.id, tool.name)
    attempt, step = call.approved_attempt, call.context.step
    # A call that is made again by the run that made it remembers its steps.
    invocation_id = services.ids.uuid()
    if attempt is not None:
        invocation_id = attempt.id[:36]
    request_id = invocation_id if step is None else f"{step.run_id}:{step.call_id}"
    path = f"/v1/{app.id}/fn/{row.name}"
    if call.tool.effect != "read":
        call.audit.resource_id = row.id
        call.audit.data["name"] = row.name
    answer = await invoke(
        Invocation(
            registry=call.registry,
            services=services,
            app=app,
            name=row.name,
            request=build_json_request(
                "POST", f"{services.options.base_url}{path}", {"x-trigger-type": "agent_tool"}, arguments or {}
            ),
            identity=identify(app, row.id, call.caller),
            trigger="tool",
            id=invocation_id,
            request_id=request_id[:80],
            path=path,
            ip=call.context.ip,
            read_only=tool.mode == "read_only",
            cause=call.context.trigger,
        )
    )
    content = await answer.read(_MOST_ANSWER)
    if content is None:
        raise ToolCallFailed(f"The answer of {row.name} has more than {_MOST_ANSWER} bytes.")
    body = read_body(content, dict(answer.headers).get("content-type", "")) if content else None
    if answer.status >= _BAD:
        text = body if isinstance(body, str) else str(body.get("error", body)) if isinstance(body, dict) else str(body)
        raise ToolCallFailed(f"The function {row.name} answered {answer.status}: {text[:_LONGEST_ERROR]}")
    return {"result": body}
