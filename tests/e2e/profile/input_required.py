"""Tools and a prompt that need input first: they answer what they need, and the client comes again with it."""

from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from baobab.mcp_server.extension import Context
from tests.e2e.profile.toolbox import Answer, Toolbox, text_result

Call = types.CallToolRequestParams
NeedsInput = types.InputRequiredResult

_ROOTS = types.ListRootsRequest()


def build_form(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def build_question(text: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def read_answer(params: Any, key: str, field: str) -> Any:
    """Returns what a person has entered; None if nothing."""
    answer = (params.input_responses or {}).get(key)
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return None
    return (answer.content or {}).get(field)


class InputRequired(Toolbox):
    async def prompts(self, ctx: Context) -> list[types.Prompt]:
        return [types.Prompt(name="test_input_required_result_prompt", description="Needs a context first.")]

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | NeedsInput | None:
        if params.name != "test_input_required_result_prompt":
            return None
        context = read_answer(params, "user_context", "context")
        if context is None:
            return NeedsInput(
                input_requests={"user_context": build_form("What context should the prompt use?", "context")}
            )
        text = types.TextContent(text=f"Use this context: {context}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


INPUT_REQUIRED = InputRequired()


@INPUT_REQUIRED.tool("Needs a name.")
async def test_input_required_result_elicitation(ctx: Context, params: Call) -> Answer:
    name = read_answer(params, "user_name", "name")
    if name is None:
        return NeedsInput(input_requests={"user_name": build_form("What is your name?", "name")})
    return text_result(f"Hello, {name}!")


@INPUT_REQUIRED.tool("Needs an answer of the client's model.")
async def test_input_required_result_sampling(ctx: Context, params: Call) -> Answer:
    answer = (params.input_responses or {}).get("capital_question")
    if not isinstance(answer, types.CreateMessageResult):
        return NeedsInput(input_requests={"capital_question": build_question("What is the capital of France?", 100)})
    return types.CallToolResult(content=[answer.content])


@INPUT_REQUIRED.tool("Needs the client's roots.")
async def test_input_required_result_list_roots(ctx: Context, params: Call) -> Answer:
    answer = (params.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return NeedsInput(input_requests={"client_roots": _ROOTS})
    return text_result("Roots: " + ", ".join(str(root.uri) for root in answer.roots))


@INPUT_REQUIRED.tool("Needs a confirmation, and its own state back.")
async def test_input_required_result_request_state(ctx: Context, params: Call) -> Answer:
    if params.request_state != "asked" or read_answer(params, "confirm", "ok") is None:
        return NeedsInput(
            input_requests={"confirm": build_form("Please confirm", "ok", "boolean")}, request_state="asked"
        )
    return text_result("state-ok")


@INPUT_REQUIRED.tool("Needs its own state back, unchanged.")
async def test_input_required_result_tampered_state(ctx: Context, params: Call) -> Answer:
    return await test_input_required_result_request_state(ctx, params)


@INPUT_REQUIRED.tool("Needs three things at once.")
async def test_input_required_result_multiple_inputs(ctx: Context, params: Call) -> Answer:
    input_requests = {
        "user_name": build_form("What is your name?", "name"),
        "greeting": build_question("Generate a greeting", 50),
        "client_roots": _ROOTS,
    }
    if input_requests.keys() - (params.input_responses or {}).keys():
        return NeedsInput(input_requests=input_requests, request_state="asked")
    return text_result(f"All is there, {read_answer(params, 'user_name', 'name')}.")


@INPUT_REQUIRED.tool("Needs one thing after another.")
async def test_input_required_result_multi_round(ctx: Context, params: Call) -> Answer:
    if params.request_state is None:
        return NeedsInput(
            input_requests={"step1": build_form("Step 1: What is your name?", "name")}, request_state="asked for a name"
        )
    if params.request_state == "asked for a name":
        return NeedsInput(
            input_requests={"step2": build_form("Step 2: What is your favorite color?", "color")},
            request_state=f"{read_answer(params, 'step1', 'name')} likes",
        )
    return text_result(f"{params.request_state} {read_answer(params, 'step2', 'color')}.")


@INPUT_REQUIRED.tool("Needs what the client has declared that it can give.")
async def test_input_required_result_capabilities(ctx: Context, params: Call) -> Answer:
    able = ctx.session.client_capabilities or types.ClientCapabilities()
    input_requests: dict[str, types.InputRequest] = {}
    if able.elicitation is not None:
        input_requests["user_name"] = build_form("What is your name?", "name")
    if able.sampling is not None:
        input_requests["greeting"] = build_question("Generate a greeting", 50)
    if able.roots is not None:
        input_requests["client_roots"] = _ROOTS
    if not input_requests.keys() - (params.input_responses or {}).keys():
        return text_result("All is there.")
    return NeedsInput(input_requests=input_requests)


@INPUT_REQUIRED.tool("Needs a client that can sample.")
async def test_missing_capability(ctx: Context, params: Call) -> Answer:
    able = ctx.session.client_capabilities
    if able is None or able.sampling is None:
        error_data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool asks the client's model.", error_data)
    return text_result("The client can sample.")


@INPUT_REQUIRED.tool("Reports progress, then needs a name.")
async def test_streaming_elicitation(ctx: Context, params: Call) -> Answer:
    await ctx.session.report_progress(1, 2, "About to ask.")
    return await test_input_required_result_elicitation(ctx, params)
