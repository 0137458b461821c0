"""The OpenAI Agents SDK, as it comes: by the Responses API."""

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, SQLiteSession, function_tool
from agents.mcp import MCPServerStreamableHttp
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
from openai import AsyncOpenAI
from pydantic import BaseModel

model = OpenAIResponsesModel(MODEL, AsyncOpenAI(base_url=f"{BASE}/v1/{APP}", api_key=KEY))


class Weather(BaseModel):
    city: str
    degrees: int


def served():
    return MCPServerStreamableHttp(params={"url": MCP, "headers": HEADERS})


async def ask(text, session=None, **parts):
    return (await Runner.run(Agent(name="matrix", model=model, **parts), text, session=session)).final_output


async def call(check):
    async with served() as server:
        return await ask(call_of(check), mcp_servers=[server])


async def chat():
    return await ask(CHAT)


async def stream():
    events = Runner.run_streamed(Agent(name="matrix", model=model), CHAT).stream_events()
    data = [event.data async for event in events if event.type == "raw_response_event"]
    return joined([piece.delta for piece in data if piece.type == "response.output_text.delta"])


async def tools():
    return await ask(TOOL, tools=[function_tool(weather)])


async def structured():
    return (await ask(STRUCTURED, output_type=Weather)).model_dump()


async def turns():
    session = SQLiteSession("matrix")
    return f"{await ask(FIRST, session)} {await ask(SECOND, session)}"


async def connect():
    async with served() as server:
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
