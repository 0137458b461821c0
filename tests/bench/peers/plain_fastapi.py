"""A FastAPI application as usually written: three dependencies, models in and out; the same store.

169 routes, of which those of the store come last; a third argument says how many stand before them.
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Response
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.sqlite import SqliteEngine

_NO_QUOTA = Quota(None, None)
_OTHERS = int(sys.argv[3]) if len(sys.argv) > 3 else 167

engine = SqliteEngine(Path(sys.argv[1]))


class Put(BaseModel):
    value: Any
    ttl: int | None = None


class ValueAnswer(BaseModel):
    value: Any


@contextlib.asynccontextmanager
async def _lifespan(_: FastAPI) -> AsyncIterator[None]:
    await engine.open()
    yield
    await engine.close()


async def check_key(authorization: Annotated[str, Header()]) -> str:
    if not authorization.startswith("Bearer bb_sk_"):
        raise HTTPException(401)
    return authorization


async def check_app(app_id: str) -> str:
    if not app_id.startswith("app_"):
        raise HTTPException(404)
    return app_id


async def check_access(app_id: Annotated[str, Depends(check_app)], who: Annotated[str, Depends(check_key)]) -> str:
    return f"{app_id}:{who}"


app = FastAPI(lifespan=_lifespan)

for number in range(_OTHERS):

    @app.get(f"/v1/{{app_id}}/other{number}/{{item}}")
    async def other(app_id: str, item: str, who: Annotated[str, Depends(check_access)]) -> dict[str, str]:
        return {"app": app_id, "item": item, "who": who}


@app.get("/v1/{app_id}/kv/{key:path}")
async def get(
    app_id: Annotated[str, Depends(check_app)], key: str, who: Annotated[str, Depends(check_access)]
) -> ValueAnswer:
    raw = await engine.get(app_id, key)
    if raw is None:
        raise HTTPException(404)
    return ValueAnswer(value=from_json(raw))


@app.put("/v1/{app_id}/kv/{key:path}", status_code=204)
async def put(
    app_id: Annotated[str, Depends(check_app)], key: str, body: Put, who: Annotated[str, Depends(check_access)]
) -> Response:
    await engine.put(app_id, key, to_json(body.value), body.ttl, Tier.DURABLE, _NO_QUOTA)
    return Response(status_code=204)


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
