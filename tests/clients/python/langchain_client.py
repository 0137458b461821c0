"""LangChain for Python: its model, and an agent whose model calls the tools of its MCP adapter."""

import checks
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

model = ChatOpenAI(model=checks.MODEL, base_url=checks.V1, api_key=checks.KEY)
mcp = MultiServerMCPClient({"baobab": {"transport": "streamable_http", "url": checks.MCP, "headers": checks.HEADERS}})


async def ask(text, tools):
    answer = await create_agent(model, tools).ainvoke({"messages": [("user", text)]})
    return answer["messages"][-1].text


async def call(check):
    return await ask(check.command, await mcp.get_tools())


def chat():
    return model.invoke(checks.CHAT).text


def stream():
    return checks.join_pieces([chunk.text for chunk in model.stream(checks.CHAT) if chunk.text])


async def tools():
    return await ask(checks.TOOL, [checks.weather])


def structured():
    return model.with_structured_output(checks.Weather).invoke(checks.STRUCTURED).model_dump()


def turns():
    first = model.invoke(checks.FIRST)
    return f"{first.text} {model.invoke([('user', checks.FIRST), first, ('user', checks.SECOND)]).text}"


def embeddings():
    # Without this option it splits texts itself, by tables that it downloads.
    client = OpenAIEmbeddings(
        model="baobab/minilm-l6-v2", base_url=checks.V1, api_key=checks.KEY, check_embedding_ctx_length=False
    )
    return f"{len(client.embed_query('Hello'))} numbers"


async def connect():
    return [tool.name for tool in await mcp.get_tools()]


checks.run(chat, stream, tools, structured, turns, embeddings, connect, call=call)
