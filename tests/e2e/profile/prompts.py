"""Prompts: one of each kind."""

import mcp_types as types

from baobab.mcp_server.extension import Context, Extension
from tests.e2e.profile.media import PICTURE, embedded


def _takes(*names: str) -> list[types.PromptArgument]:
    return [types.PromptArgument(name=name, description=f"The {name} to use.", required=True) for name in names]


_PROMPTS = (
    types.Prompt(name="test_simple_prompt", description="A text."),
    types.Prompt(
        name="test_prompt_with_arguments", description="A text made of arguments.", arguments=_takes("arg1", "arg2")
    ),
    types.Prompt(name="test_prompt_with_embedded_resource", description="A resource.", arguments=_takes("resourceUri")),
    types.Prompt(name="test_prompt_with_image", description="A picture."),
)


class Prompts(Extension):
    async def prompts(self, ctx: Context) -> tuple[types.Prompt, ...]:
        return _PROMPTS

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult | None:
        given = params.arguments or {}
        match params.name:
            case "test_simple_prompt":
                return _messages(types.TextContent(text="This is a simple prompt for testing."))
            case "test_prompt_with_arguments":
                text = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
                return _messages(types.TextContent(text=text))
            case "test_prompt_with_embedded_resource":
                resource = embedded(given.get("resourceUri", ""), "Embedded resource content for testing.")
                return _messages(resource, types.TextContent(text="Please process the embedded resource above."))
            case "test_prompt_with_image":
                return _messages(PICTURE, types.TextContent(text="Please analyze the image above."))
        return None

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult | None:
        known = {prompt.name for prompt in _PROMPTS}
        if not isinstance(params.ref, types.PromptReference) or params.ref.name not in known:
            return None
        values = [value for value in ("paris", "park", "party") if value.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


def _messages(*contents: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content) for content in contents])
