"""LangChain for Python: its model, and an agent whose model calls the tools of its MCP adapter."""

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
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

model = ChatOpenAI(model=MODEL, base_url=f"{BASE}/v1/{APP}", api_key=KEY)
mcp = MultiServerMCPClient({"baobab": {"transport": "streamable_http", "url": MCP, "headers": HEADERS}})


class Weather(BaseModel):
    city: str
    degrees: int


async def ask(text, tools):
    answer = await create_agent(model, tools).ainvoke({"messages": [("user", text)]})
    return answer["messages"][-1].text


async def call(check):
    return await ask(call_of(check), await mcp.get_tools())


def chat():
    return model.invoke(CHAT).text


def stream():
    return joined([chunk.text for chunk in model.stream(CHAT) if chunk.text])


async def tools():
    return await ask(TOOL, [weather])


def structured():
    return model.with_structured_output(Weather).invoke(STRUCTURED).model_dump()


def turns():
    first = model.invoke(FIRST)
    return f"{first.text} {model.invoke([('user', FIRST), first, ('user', SECOND)]).text}"


def embeddings():
    # Without this option it splits texts itself, by tables that it downloads.
    client = OpenAIEmbeddings(
        model="baobab/minilm-l6-v2", base_url=f"{BASE}/v1", api_key=KEY, check_embedding_ctx_length=False
    )
    return f"{len(client.embed_query('Hello'))} numbers"


async def connect():
    return [tool.name for tool in await mcp.get_tools()]


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


run(chat, stream, tools, structured, turns, embeddings, connect, value, search, refusal, approval)
