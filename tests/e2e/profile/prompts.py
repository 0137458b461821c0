"""Prompts: one of each kind."""

import mcp_types as types

from baobab.mcp_server.extension import Context, Extension
from tests.e2e.profile.media import PICTURE, embed_text


def _build_arguments(*names: str) -> list[types.PromptArgument]:
    return [types.PromptArgument(name=name, description=f"The {name} to use.", required=True) for name in names]


_PROMPTS = (
    types.Prompt(name="test_simple_prompt", description="A text."),
    types.Prompt(
        name="test_prompt_with_arguments",
        description="A text made of arguments.",
        arguments=_build_arguments("arg1", "arg2"),
    ),
    types.Prompt(
        name="test_prompt_with_embedded_resource", description="A resource.", arguments=_build_arguments("resourceUri")
    ),
    types.Prompt(name="test_prompt_with_image", description="A picture."),
)


class Prompts(Extension):
    async def prompts(self, ctx: Context) -> tuple[types.Prompt, ...]:
        return _PROMPTS

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult | None:
        arguments = params.arguments or {}
        match params.name:
            case "test_simple_prompt":
                return _build_messages(types.TextContent(text="This is a simple prompt for testing."))
            case "test_prompt_with_arguments":
                text = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
                return _build_messages(types.TextContent(text=text))
            case "test_prompt_with_embedded_resource":
                resource = embed_text(arguments.get("resourceUri", ""), "Embedded resource content for testing.")
                return _build_messages(resource, types.TextContent(text="Please process the embedded resource above."))
            case "test_prompt_with_image":
                return _build_messages(PICTURE, types.TextContent(text="Please analyze the image above."))
        return None

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult | None:
        names = {prompt.name for prompt in _PROMPTS}
        if not isinstance(params.ref, types.PromptReference) or params.ref.name not in names:
            return None
        values = [value for value in ("paris", "park", "party") if value.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


def _build_messages(*contents: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content) for content in contents])
