"""Pydantic AI."""

import checks
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(checks.MODEL, provider=OpenAIProvider(base_url=checks.V1, api_key=checks.KEY))


async def ask(text, **parts):
    return (await Agent(model, **parts).run(text)).output


async def call(check):
    return await ask(check.command, toolsets=[MCPToolset(checks.MCP, headers=checks.HEADERS)])


async def chat():
    return await ask(checks.CHAT)


async def stream():
    async with Agent(model).run_stream(checks.CHAT) as answer:
        return checks.join_pieces([piece async for piece in answer.stream_text(delta=True, debounce_by=None)])


async def tools():
    return await ask(checks.TOOL, tools=[checks.weather])


async def structured():
    return (await ask(checks.STRUCTURED, output_type=checks.Weather)).model_dump()


async def turns():
    first = await Agent(model).run(checks.FIRST)
    second = await Agent(model).run(checks.SECOND, message_history=first.all_messages())
    return f"{first.output} {second.output}"


async def connect():
    async with MCPToolset(checks.MCP, headers=checks.HEADERS) as server:
        return [tool.name for tool in await server.list_tools()]


checks.run(chat, stream, tools, structured, turns, connect, call=call)
