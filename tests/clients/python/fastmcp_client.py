"""FastMCP's client."""

from checks import APPROVAL, KEY, MCP, REFUSAL, SEARCH, VALUE, approve, run
from fastmcp import Client


async def call(name, arguments):
    async with Client(MCP, auth=KEY) as client:
        answer = await client.call_tool(name, arguments, raise_on_error=False)
        return answer.content[0].text


async def connect():
    async with Client(MCP, auth=KEY) as client:
        return [tool.name for tool in await client.list_tools()]


async def value():
    return await call(*VALUE)


async def search():
    return await call(*SEARCH)


async def refusal():
    return await call(*REFUSAL)


async def approval():
    asked = await call(*APPROVAL)
    approve()
    return asked + await call(*APPROVAL)


run(connect, value, search, refusal, approval)
