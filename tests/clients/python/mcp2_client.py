"""The MCP SDK for Python from 2 on."""

from contextlib import asynccontextmanager

import checks
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def open_session():
    http = httpx2.AsyncClient(headers=checks.HEADERS, timeout=60)
    async with http, Client(streamable_http_client(checks.MCP, http_client=http)) as client:
        yield client


checks.run_session(open_session)
