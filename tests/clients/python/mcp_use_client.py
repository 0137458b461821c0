"""mcp-use: its agent, whose model of LangChain calls the tools of its MCP client."""

import checks
from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient

model = ChatOpenAI(model=checks.MODEL, base_url=checks.V1, api_key=checks.KEY)
servers = {"mcpServers": {"baobab": {"url": checks.MCP, "auth": checks.KEY}}}


async def call(check):
    client = MCPClient.from_dict(servers)
    try:
        return await MCPAgent(llm=model, client=client, max_steps=5).run(check.command)
    finally:
        await client.close_all_sessions()


async def connect():
    client = MCPClient.from_dict(servers)
    session = await client.create_session("baobab")
    try:
        return [tool.name for tool in await session.list_tools()]
    finally:
        await client.close_all_sessions()


checks.run(connect, call=call)
