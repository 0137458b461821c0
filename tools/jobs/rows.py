"""Reads the rows of an organisation's jobs, in the databases of all regions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Select, and_, select, tuple_

from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.sql.database import Database
from baobab.tools.core import Call, Services
from baobab.tools.core.job import CANCELLED, JobKind
from baobab.tools.jobs.errors import JobNotFound
from baobab.tools.jobs.schemas import JobDetail, JobEntry, JobStatus

State = Literal["unfinished", "failed"]
CANCEL = "jobs_cancel"


def list_databases(services: Services) -> dict[str, Database]:
    """Returns the databases that hold jobs, each by the first region of which it keeps the rows: this installation's
    first.
    """
    home = services.options.default_region
    databases = {home: services.database, **{name: stores.database for name, stores in services.regions.items()}}
    first: dict[Database, str] = {}
    for name, database in databases.items():
        first.setdefault(database, name)
    return {name: database for database, name in first.items()}


def select_page(tenant: str, state: State, kind: str | None, after: tuple[str, datetime, str] | None) -> Select[Any]:
    """Builds the query of one page of a tenant's jobs.

    after: kind, moment and id of the last row of the page before.
    """
    columns = jobs.c
    if state == "unfinished":
        order = (columns.kind, columns.due_at, columns.id)
        query = select(jobs).where(columns.finished_at.is_(None)).order_by(*order)
        is_earlier = None if after is None else tuple_(*order) > after
    else:
        is_failed = and_(columns.finished_at.is_not(None), columns.error.is_not(None))
        query = select(jobs).where(is_failed).order_by(columns.finished_at.desc(), columns.id.desc())
        is_earlier = None if after is None else tuple_(columns.finished_at, columns.id) < after[1:]
    conditions = [columns.tenant == tenant]
    conditions += [] if kind is None else [columns.kind == kind]
    conditions += [] if is_earlier is None else [is_earlier]
    return query.where(*conditions)


async def read_rows(call: Call, database: Database, query: Select[Any]) -> list[Any]:
    if database is call.unit.database:
        return list((await call.execute(query)).all())
    async with database.reading() as connection:
        return list((await connection.execute(query)).all())


async def find_row(call: Call, organisation_id: str, job_id: str) -> tuple[str, Database, Any]:
    """Returns the region, database and row of a job of an organisation. Raises JobNotFound."""
    query = select(jobs).where(jobs.c.id == job_id, jobs.c.tenant == organisation_id)
    for region, database in list_databases(call.services).items():
        rows = await read_rows(call, database, query)
        if rows:
            return region, database, rows[0]
    raise JobNotFound


def get_status(row: Any) -> JobStatus:
    if row.finished_at is None:
        return "waiting" if row.held_by is None else "running"
    if row.error is None:
        return "completed"
    return "cancelled" if row.error == CANCELLED else "failed"


def render_entry(kinds: Mapping[str, JobKind], region: str, row: Any) -> JobEntry:
    kind = kinds.get(row.kind)
    app_id = row.arguments.get("app_id")
    ends = None if kind is None or row.finished_at is not None or kind.cancel is None else kind.cancel
    return {
        "id": row.id,
        "kind": row.kind,
        "does": "" if kind is None else " ".join((kind.work.__doc__ or "").split()),
        "status": get_status(row),
        "region": region,
        "app_id": app_id if isinstance(app_id, str) else None,
        "attempts": row.attempts,
        "most_attempts": None if kind is None else kind.attempts,
        "created_at": row.created_at,
        "due_at": row.due_at,
        "finished_at": row.finished_at,
        "error": row.error,
        "cancelled_with": CANCEL if ends is True else ends,
    }


def render_detail(kinds: Mapping[str, JobKind], region: str, row: Any) -> JobDetail:
    return {**render_entry(kinds, region, row), "arguments": row.arguments}
