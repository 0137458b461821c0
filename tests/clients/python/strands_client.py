"""Strands Agents: its model for the OpenAI wire, and an agent whose model calls the tools of its MCP client."""

import checks
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

model = OpenAIModel(client_args={"base_url": checks.V1, "api_key": checks.KEY}, model_id=checks.MODEL)


def agent(*tools):
    return Agent(model=model, tools=list(tools), callback_handler=None)


def build_server():
    return MCPClient(url=checks.MCP, headers=checks.HEADERS)


async def ask(agent, text):
    return str(await agent.invoke_async(text))


async def call(check):
    with build_server() as server:
        return await ask(agent(*server.list_tools_sync()), check.command)


async def chat():
    return await ask(agent(), checks.CHAT)


async def stream():
    return checks.join_pieces([event["data"] async for event in agent().stream_async(checks.CHAT) if "data" in event])


async def tools():
    return await ask(agent(tool(checks.weather)), checks.TOOL)


async def structured():
    # It takes an answer to a schema from the call of a tool that it calls like the schema.
    answer = await agent().invoke_async(
        '/call Weather {"city": "Oslo", "degrees": 7}', structured_output_model=checks.Weather
    )
    return answer.structured_output.model_dump()


async def turns():
    same = agent()
    return f"{await ask(same, checks.FIRST)} {await ask(same, checks.SECOND)}"


def connect():
    with build_server() as server:
        return [tool.tool_name for tool in server.list_tools_sync()]


checks.run(chat, stream, tools, structured, turns, connect, call=call)
