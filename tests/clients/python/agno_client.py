"""Agno: its model for servers of the OpenAI wire, and an agent whose model calls the tools of its MCP toolkit."""

import checks
from agno.agent import Agent
from agno.models.message import Message
from agno.models.openai.like import OpenAILike
from agno.tools.mcp import MCPTools, StreamableHTTPClientParams

model = OpenAILike(id=checks.MODEL, base_url=checks.V1, api_key=checks.KEY)


def build_server():
    return MCPTools(
        transport="streamable-http",
        server_params=StreamableHTTPClientParams(url=checks.MCP, headers=checks.HEADERS),
    )


async def ask(text, **parts):
    return (await Agent(model=model, telemetry=False, **parts).arun(text)).content


async def call(check):
    async with build_server() as server:
        return await ask(check.command, tools=[server])


async def chat():
    return await ask(checks.CHAT)


async def stream():
    events = Agent(model=model, telemetry=False).arun(checks.CHAT, stream=True)
    return checks.join_pieces([event.content async for event in events if event.content])


async def tools():
    return await ask(checks.TOOL, tools=[checks.weather])


async def structured():
    return (await ask(checks.STRUCTURED, output_schema=checks.Weather)).model_dump()


async def turns():
    first = await ask(checks.FIRST)
    dialogue = [(("user", "assistant")[at % 2], text) for at, text in enumerate([checks.FIRST, first, checks.SECOND])]
    return f"{first} {await ask([Message(role=role, content=text) for role, text in dialogue])}"


async def connect():
    async with build_server() as server:
        return list(server.get_async_functions() or server.functions)


checks.run(chat, stream, tools, structured, turns, connect, call=call)
