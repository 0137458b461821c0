"""The MCP SDK for Python from 2 on."""

from contextlib import asynccontextmanager

import httpx2
from checks import APPROVAL, HEADERS, MCP, REFUSAL, SEARCH, VALUE, approve, run
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def connected():
    http = httpx2.AsyncClient(headers=HEADERS)
    async with http, Client(streamable_http_client(MCP, http_client=http)) as client:
        yield client


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
