"""CrewAI: its model, and an agent whose model calls the tools of its MCP adapter."""

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
    run,
    weather,
)
from crewai import LLM, Agent
from crewai.tools import tool
from crewai_tools import MCPServerAdapter
from pydantic import BaseModel

model = LLM(model=MODEL, provider="openai", base_url=f"{BASE}/v1/{APP}", api_key=KEY)
server = {"url": MCP, "transport": "streamable-http", "headers": HEADERS}


class Weather(BaseModel):
    city: str
    degrees: int


async def ask(text, tools):
    agent = Agent(role="matrix", goal="Do what is asked.", backstory="None.", llm=model, tools=tools)
    # It puts words of its own before the text; a command begins a line.
    return (await agent.kickoff_async(f"\n{text}")).raw


async def call(check):
    with MCPServerAdapter(server) as served:
        return await ask(call_of(check), list(served))


def chat():
    return model.call(CHAT)


async def tools():
    return await ask(TOOL, [tool("weather")(weather)])


def structured():
    return model.call(STRUCTURED, response_model=Weather).model_dump()


def turns():
    messages = [{"role": "user", "content": FIRST}]
    first = model.call(messages)
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": SECOND}]
    return f"{first} {model.call(messages)}"


def connect():
    with MCPServerAdapter(server) as served:
        return [found.name for found in served]


async def value():
    return await call(VALUE)


async def search():
    return await call(SEARCH)


async def refusal():
    return await call(REFUSAL)


async def approval():
    asked = await call(APPROVAL)
    approve()
    return asked + await call(APPROVAL)


run(chat, tools, structured, turns, connect, value, search, refusal, approval)
