"""The OpenAI Agents SDK, as it comes: by the Responses API."""

import checks
from agents import Agent, OpenAIResponsesModel, Runner, SQLiteSession, function_tool
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

model = OpenAIResponsesModel(checks.MODEL, AsyncOpenAI(base_url=checks.V1, api_key=checks.KEY))


def build_server():
    return MCPServerStreamableHttp(params={"url": checks.MCP, "headers": checks.HEADERS})


async def ask(text, session=None, **parts):
    return (await Runner.run(Agent(name="matrix", model=model, **parts), text, session=session)).final_output


async def call(check):
    async with build_server() as server:
        return await ask(check.command, mcp_servers=[server])


async def chat():
    return await ask(checks.CHAT)


async def stream():
    events = Runner.run_streamed(Agent(name="matrix", model=model), checks.CHAT).stream_events()
    data = [event.data async for event in events if event.type == "raw_response_event"]
    return checks.join_pieces([piece.delta for piece in data if piece.type == "response.output_text.delta"])


async def tools():
    return await ask(checks.TOOL, tools=[function_tool(checks.weather)])


async def structured():
    return (await ask(checks.STRUCTURED, output_type=checks.Weather)).model_dump()


async def turns():
    session = SQLiteSession("matrix")
    return f"{await ask(checks.FIRST, session)} {await ask(checks.SECOND, session)}"


async def connect():
    async with build_server() as server:
        return [tool.name for tool in await server.list_tools()]


checks.run(chat, stream, tools, structured, turns, connect, call=call)
