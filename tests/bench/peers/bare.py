"""A bare ASGI application on the same store: JSON in and out, no checks, no rules. The floor for REST."""

import sys
from pathlib import Path
from typing import Any

import uvicorn
from pydantic_core import from_json, to_json

from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.sqlite import SqliteEngine

_NO_QUOTA = Quota(None, None)


class Bare:
    def __init__(self, folder: str) -> None:
        self._engine = SqliteEngine(Path(folder))

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await self._engine.open()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._engine.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        _, _, app_id, _, key = scope["path"].split("/", 4)
        if scope["method"] == "PUT":
            body = from_json((await receive())["body"])
            await self._engine.put(app_id, key, to_json(body["value"]), 2592000, Tier.DURABLE, _NO_QUOTA)
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        value = await self._engine.get(app_id, key)
        answer = to_json({"value": from_json(value or b"null")})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(Bare(sys.argv[1]), port=int(sys.argv[2]), log_level="error", access_log=False, lifespan="on")
