"""Pydantic AI."""

import asyncio

from checks import (
    APP,
    APPROVAL,
    BASE,
    CHAT,
    FIRST,
    HEADERS,
    KEY,
    MCP,
    MODEL,
    REFUSAL,
    SEARCH,
    SECOND,
    STRUCTURED,
    TOOL,
    VALUE,
    approve,
    call_of,
    joined,
    run,
    weather,
)
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{BASE}/v1/{APP}", api_key=KEY))


class Weather(BaseModel):
    city: str
    degrees: int


async def ask(text, **parts):
    return (await Agent(model, **parts).run(text)).output


async def call(check):
    return await ask(call_of(check), toolsets=[MCPToolset(MCP, headers=HEADERS)])


async def chat():
    return await ask(CHAT)


async def stream():
    async with Agent(model).run_stream(CHAT) as answer:
        return joined([piece async for piece in answer.stream_text(delta=True, debounce_by=None)])


async def tools():
    return await ask(TOOL, tools=[weather])


async def structured():
    return (await ask(STRUCTURED, output_type=Weather)).model_dump()


async def turns():
    first = await Agent(model).run(FIRST)
    second = await Agent(model).run(SECOND, message_history=first.all_messages())
    return f"{first.output} {second.output}"


async def connect():
    async with MCPToolset(MCP, headers=HEADERS) as server:
        return [tool.name for tool in await server.list_tools()]


async def value():
    return await call(VALUE)


async def search():
    return await call(SEARCH)


async def refusal():
    return await call(REFUSAL)


async def approval():
    asked = await call(APPROVAL)
    await asyncio.to_thread(approve)
    return asked + await call(APPROVAL)


run(chat, stream, tools, structured, turns, connect, value, search, refusal, approval)
