"""LlamaIndex: its model for servers of the OpenAI wire, and an agent whose model calls the tools of its MCP adapter."""

import checks
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

model = OpenAILike(
    model=checks.MODEL,
    api_base=checks.V1,
    api_key=checks.KEY,
    is_chat_model=True,
    is_function_calling_model=True,
)


def fetch_tools():
    return McpToolSpec(client=BasicMCPClient(checks.MCP, headers=checks.HEADERS)).to_tool_list_async()


async def ask(text, tools):
    return str(await FunctionAgent(tools=tools, llm=model).run(text))


async def call(check):
    return await ask(check.command, await fetch_tools())


async def chat():
    return (await model.achat([ChatMessage(checks.CHAT)])).message.content


async def stream():
    return checks.join_pieces(
        [piece.delta async for piece in await model.astream_chat([ChatMessage(checks.CHAT)]) if piece.delta]
    )


async def tools():
    return await ask(checks.TOOL, [checks.weather])


async def structured():
    return (
        await model.astructured_predict(checks.Weather, PromptTemplate("{text}"), text=checks.STRUCTURED)
    ).model_dump()


async def turns():
    first = (await model.achat([ChatMessage(checks.FIRST)])).message
    second = (await model.achat([ChatMessage(checks.FIRST), first, ChatMessage(checks.SECOND)])).message
    return f"{first.content} {second.content}"


async def connect():
    return [tool.metadata.name for tool in await fetch_tools()]


checks.run(chat, stream, tools, structured, turns, connect, call=call)
