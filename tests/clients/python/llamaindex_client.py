"""LlamaIndex: its model for servers of the OpenAI wire, and an agent whose model calls the tools of its MCP adapter."""

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
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from pydantic import BaseModel

model = OpenAILike(
    model=MODEL, api_base=f"{BASE}/v1/{APP}", api_key=KEY, is_chat_model=True, is_function_calling_model=True
)


class Weather(BaseModel):
    city: str
    degrees: int


def served():
    return McpToolSpec(client=BasicMCPClient(MCP, headers=HEADERS)).to_tool_list_async()


async def ask(text, tools):
    return str(await FunctionAgent(tools=tools, llm=model).run(text))


async def call(check):
    return await ask(call_of(check), await served())


async def chat():
    return (await model.achat([ChatMessage(CHAT)])).message.content


async def stream():
    return joined([piece.delta async for piece in await model.astream_chat([ChatMessage(CHAT)]) if piece.delta])


async def tools():
    return await ask(TOOL, [weather])


async def structured():
    return (await model.astructured_predict(Weather, PromptTemplate("{text}"), text=STRUCTURED)).model_dump()


async def turns():
    first = (await model.achat([ChatMessage(FIRST)])).message
    second = (await model.achat([ChatMessage(FIRST), first, ChatMessage(SECOND)])).message
    return f"{first.content} {second.content}"


async def connect():
    return [tool.metadata.name for tool in await served()]


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
