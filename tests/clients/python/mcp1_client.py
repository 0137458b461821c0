"""The MCP SDK for Python before 2."""

from contextlib import asynccontextmanager

import checks
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


@asynccontextmanager
async def open_session():
    async with (
        streamablehttp_client(checks.MCP, headers=checks.HEADERS) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


checks.run_session(open_session)
