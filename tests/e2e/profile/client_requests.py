"""Tools that ask the client back in the middle of a call, as protocols before 2026 do: only with a session."""

import json
from typing import Any

import mcp_types as types

from baobab.mcp_server.extension import Context
from tests.e2e.profile.toolbox import Toolbox, text_result, text_schema

CLIENT_REQUESTS = Toolbox()
Call = types.CallToolRequestParams
Result = types.CallToolResult


def _titled_options(keyword: str, **titles: str) -> dict[str, Any]:
    return {keyword: [{"const": value, "title": title} for value, title in titles.items()]}


_DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_CHOICES = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        **_titled_options("oneOf", value1="First Option", value2="Second", value3="Third"),
    },
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": _titled_options("anyOf", value1="First Choice", value2="Second Choice", value3="Third Choice"),
    },
}


@CLIENT_REQUESTS.tool("Asks the client's model.", text_schema(prompt="What to ask."))
async def test_sampling(ctx: Context, params: Call) -> Result:
    question = types.TextContent(text=(params.arguments or {})["prompt"])
    answer = await ctx.session.create_message(
        [types.SamplingMessage(role="user", content=question)], max_tokens=100, related_request_id=ctx.request_id
    )
    return text_result(f"LLM response: {answer.content.text}")


@CLIENT_REQUESTS.tool("Asks the client's person for name and address.", text_schema(message="What to ask."))
async def test_elicitation(ctx: Context, params: Call) -> Result:
    schema = text_schema(username="User's response", email="User's email address")
    return text_result(f"User response: {await _elicit(ctx, (params.arguments or {})['message'], schema)}")


@CLIENT_REQUESTS.tool("Asks the client's person with a form that is filled in already.")
async def test_elicitation_sep1034_defaults(ctx: Context, params: Call) -> Result:
    schema = {"type": "object", "properties": _DEFAULTS}
    return text_result(f"Elicitation completed: {await _elicit(ctx, 'Please check what is filled in.', schema)}")


@CLIENT_REQUESTS.tool("Asks the client's person to choose.")
async def test_elicitation_sep1330_enums(ctx: Context, params: Call) -> Result:
    schema = {"type": "object", "properties": _CHOICES}
    return text_result(f"Elicitation completed: {await _elicit(ctx, 'Please choose.', schema)}")


async def _elicit(ctx: Context, message: str, schema: dict[str, Any]) -> str:
    answer = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return f"action={answer.action}, content={json.dumps(answer.content)}"
