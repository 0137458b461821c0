"""A fastmcp server as usually written: two hundred typed tools, streamable HTTP, stateless, JSON; the same store.

It checks no credential, limits nothing and keeps no record: what it costs is fastmcp alone.
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field
from pydantic_core import from_json

from baobab.storage.kv.sqlite import SqliteEngine

_OTHERS = 199

AppId = Annotated[str, Field(pattern="^app_", max_length=64)]
Key = Annotated[str, Field(min_length=1, max_length=1024)]

engine = SqliteEngine(Path(sys.argv[1]))


class ValueAnswer(BaseModel):
    value: Any


@contextlib.asynccontextmanager
async def _lifespan(_: FastMCP) -> AsyncIterator[None]:
    await engine.open()
    yield
    await engine.close()


server = FastMCP("peer", lifespan=_lifespan)


@server.tool
async def kv_get(app_id: AppId, key: Key, touch: bool = False) -> ValueAnswer:
    """Read the value stored under a key."""
    raw = await engine.get(app_id, key, touch)
    if raw is None:
        raise ToolError("There is nothing under this key.")
    return ValueAnswer(value=from_json(raw))


for number in range(_OTHERS):

    @server.tool(name=f"other_{number}")
    async def other(app_id: AppId, key: Key, limit: Annotated[int, Field(ge=1, le=100)] = 20) -> ValueAnswer:
        """Stand beside the tool that is called, as most tools do.

        limit: how many.
        """
        return ValueAnswer(value=[app_id, key, limit])


if __name__ == "__main__":
    app = server.http_app(stateless_http=True, json_response=True)
    uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
