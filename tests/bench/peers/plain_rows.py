"""A FastAPI application as usually written, on rows: SQLAlchemy with aiosqlite, models in and out.

It reads and writes the rows that `GET /apps` and `POST /init` read and write.
"""

import contextlib
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel
from sqlalchemy import JSON, Column, DateTime, Integer, MetaData, String, Table, event, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

_metadata = MetaData()
_apps = Table(
    "apps",
    _metadata,
    Column("id", String(40), primary_key=True),
    Column("organisation_id", String(36), nullable=False, index=True),
    Column("name", String(63), nullable=False),
    Column("region", String(40), nullable=False),
    Column("settings", JSON, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
_notices, _events, _audit = (
    Table(
        name,
        _metadata,
        Column("id", Integer, primary_key=True),
        Column("subject", String(200), nullable=False),
        Column("data", JSON),
        Column("at", DateTime(timezone=True), nullable=False, index=True),
    )
    for name in ("notices", "events", "audit_logs")
)
_engine = create_async_engine(f"sqlite+aiosqlite:///{sys.argv[1]}")
_ORGANISATION = "00000000-0000-4000-8000-000000000000"


@event.listens_for(_engine.sync_engine, "connect")
def _on_connect(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
        connection.execute(f"PRAGMA {pragma}").close()


class NewApp(BaseModel):
    name: str
    region: str = "local"


class AppAnswer(BaseModel):
    app_id: str
    name: str
    region: str
    created_at: datetime


class AppsAnswer(BaseModel):
    apps: list[AppAnswer]


@contextlib.asynccontextmanager
async def _lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with _engine.begin() as connection:
        await connection.run_sync(_metadata.create_all)
    yield
    await _engine.dispose()


async def check_key(authorization: Annotated[str, Header()]) -> str:
    if not authorization.startswith("Bearer bb_sk_"):
        raise HTTPException(401)
    return authorization


async def open_connection() -> AsyncIterator[AsyncConnection]:
    async with _engine.begin() as connection:
        yield connection


app = FastAPI(lifespan=_lifespan)


@app.get("/apps")
async def list_apps(
    connection: Annotated[AsyncConnection, Depends(open_connection)],
    who: Annotated[str, Depends(check_key)],
    limit: int = 50,
) -> AppsAnswer:
    is_owned = _apps.c.organisation_id == _ORGANISATION
    rows = (
        await connection.execute(select(_apps).where(is_owned).order_by(_apps.c.created_at.desc()).limit(limit))
    ).all()
    answers = [AppAnswer(app_id=row.id, name=row.name, region=row.region, created_at=row.created_at) for row in rows]
    return AppsAnswer(apps=answers)


@app.post("/init", status_code=201)
async def init(
    body: NewApp,
    connection: Annotated[AsyncConnection, Depends(open_connection)],
    who: Annotated[str, Depends(check_key)],
) -> AppAnswer:
    is_owned = _apps.c.organisation_id == _ORGANISATION
    if (await connection.execute(select(_apps).where(is_owned, _apps.c.name == body.name))).first() is not None:
        raise HTTPException(409)
    await connection.scalar(select(func.count()).select_from(_apps).where(is_owned))
    now, app_id = datetime.now(UTC), f"app_{uuid.uuid4().hex[:12]}"
    row = {"id": app_id, "organisation_id": _ORGANISATION, "name": body.name, "region": body.region}
    await connection.execute(insert(_apps), {**row, "settings": {"max": 10, "types": []}, "created_at": now})
    for subject in (app_id, f"organisation:{_ORGANISATION}"):
        await connection.execute(insert(_notices), {"subject": subject, "at": now})
    for table in (_events, _audit):
        await connection.execute(insert(table), {"subject": app_id, "data": {"name": body.name}, "at": now})
    return AppAnswer(app_id=app_id, name=body.name, region=body.region, created_at=now)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
