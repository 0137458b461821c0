"""The MCP SDK for Python before 2."""

from contextlib import asynccontextmanager

from checks import APPROVAL, HEADERS, MCP, REFUSAL, SEARCH, VALUE, approve, run
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


@asynccontextmanager
async def connected():
    async with streamablehttp_client(MCP, headers=HEADERS) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def call(name, arguments):
    async with connected() as session:
        answer = await session.call_tool(name, arguments)
        return answer.content[0].text


async def connect():
    async with connected() as session:
        return [tool.name for tool in (await session.list_tools()).tools]


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
