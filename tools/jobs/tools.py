"""/v1/jobs: the durable jobs of the caller's organisation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import ColumnElement, and_, or_, select, update

from baobab.runtime.jobs.job_tables import jobs as rows
from baobab.storage.sql.database import Database
from baobab.tools.core import AnyAccount, Call, Cursor, Guard, PageSize, Text, Uuid, decode_cursor, encode_cursor
from baobab.tools.core.auth.membership import resolve_organisation_id
from baobab.tools.core.job import CANCELLED
from baobab.tools.core.jobs import JOBS
from baobab.tools.core.list_totals import MOST_COUNTED
from baobab.tools.core.listing import Listing
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.jobs.errors import JobNotCancelled, JobNotFound, JobNotRetried
from baobab.tools.jobs.rows import State, find_row, list_databases, read_rows, render_detail, render_entry, select_page
from baobab.tools.jobs.schemas import JobEntry, Jobs, OneJob
from baobab.tools.jobs.toolset import jobs

_NOBODYS = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
JobId = Annotated[str, Text(200, min_length=1), Field(description="The job, by its id.", examples=[_NOBODYS])]
OrganizationId = Annotated[Uuid | None, Field(description="An organisation of yours; the credential's own when null.")]
Kind = Annotated[str, Text(64, min_length=1), Field(examples=["agents_advance"])]


@jobs.tool(
    "GET /",
    access=AnyAccount(),
    effect="read",
    listing=Listing("jobs"),
    taints=True,
)
async def jobs_list(
    call: Call,
    status: State = "unfinished",
    kind: Kind | None = None,
    limit: PageSize = 100,
    cursor: Cursor | None = None,
    organization_id: OrganizationId = None,
) -> Jobs:
    """List the durable jobs of an organisation that wait or run, or those that have failed in the last 30 days.

    status: `unfinished` ones wait or run; `failed` ones have used up their attempts, or were cancelled.
    kind: only jobs of this kind; null for all.
    """
    organisation, databases = await resolve_organisation_id(call, organization_id), list_databases(call.services)
    vault, of = call.services.vault, f"jobs:{organisation}:{status}:{kind}"
    region, after = None, None
    if cursor is not None:
        region, *position = decode_cursor(vault, of, cursor)
        if region not in databases:
            raise CursorInvalid("The region of this cursor does not answer now.")
        after = (position[0], datetime.fromisoformat(position[1]), position[2])
    names = list(databases)
    page: list[tuple[str, Any]] = []
    for name in names[names.index(region) if region else 0 :]:
        query = select_page(organisation, status, kind, after if name == region else None)
        job_rows = await read_rows(call, databases[name], query.limit(limit + 1 - len(page)))
        page += [(name, row) for row in job_rows]
        if len(page) > limit:
            break
    following = None
    if (cursor is not None or len(page) > limit) and call.context.counts_lists:
        ids = select_page(organisation, status, kind, None).with_only_columns(rows.c.id).limit(MOST_COUNTED + 1)
        count = sum([len(await read_rows(call, database, ids)) for database in databases.values()])
        is_exact = count <= MOST_COUNTED and not call.services.closed_regions
        call.count_list(min(count, MOST_COUNTED + 1), is_exact=is_exact)
    if len(page) > limit:
        name, last = page[limit - 1]
        moment = last.due_at if status == "unfinished" else last.finished_at
        following = encode_cursor(vault, of, name, last.kind, moment.isoformat(), last.id)
    entries: Sequence[JobEntry] = [render_entry(call.registry.jobs, name, row) for name, row in page[:limit]]
    return {"jobs": list(entries), "next_cursor": following, "silent_regions": call.services.closed_regions}


@jobs.tool(
    "GET /{job_id:path}",
    access=AnyAccount(),
    effect="read",
    taints=True,
    raises=(JobNotFound,),
)
async def jobs_get(call: Call, job_id: JobId, organization_id: OrganizationId = None) -> OneJob:
    """Read one job of an organisation: what it does, how often it was tried, why the last attempt failed."""
    region, _, row = await find_row(call, await resolve_organisation_id(call, organization_id), job_id)
    return {"job": render_detail(call.registry.jobs, region, row)}


@jobs.tool(
    "POST /{job_id:path}/retry",
    access=AnyAccount(named_role="admin"),
    effect="write",
    raises=(JobNotFound, JobNotRetried),
)
async def jobs_retry(call: Call, job_id: JobId, organization_id: OrganizationId = None) -> OneJob:
    """Retry a job now that has failed, was cancelled, or waits for its next attempt. Its attempts are counted from 0.

    Only an admin or owner of the organisation can.
    """
    organisation = await resolve_organisation_id(call, organization_id, "admin")
    region, database, row = await find_row(call, organisation, job_id)
    has_failed = and_(rows.c.finished_at.is_not(None), rows.c.error.is_not(None))
    is_idle = and_(rows.c.finished_at.is_(None), rows.c.held_by.is_(None))
    changes = {"finished_at": None, "held_by": None, "attempts": 0, "due_at": call.now}
    if not await _change(call, database, row, or_(has_failed, is_idle), changes):
        raise JobNotRetried
    return await _answer(call, region, database, row.id)


async def _preview_cancel(call: Call, job_id: JobId, organization_id: OrganizationId = None) -> str:
    _, _, row = await find_row(call, await resolve_organisation_id(call, organization_id, "admin"), job_id)
    _require_cancellable(call, row)
    return f"It would end the job {row.kind}, tried {row.attempts} times so far, before it is done."


@jobs.tool(
    "POST /{job_id:path}/cancel",
    access=AnyAccount(named_role="admin"),
    effect="destructive",
    raises=(JobNotFound, JobNotCancelled),
    guard=Guard(preview=_preview_cancel),
)
async def jobs_cancel(call: Call, job_id: JobId, organization_id: OrganizationId = None) -> OneJob:
    """End a job before it is done. A running attempt writes nothing from now on, and is stopped within seconds.

    Only an admin or owner of the organisation can.
    Most jobs are part of something that has a tool of its own to end it: `cancelled_with` names it.
    """
    organisation = await resolve_organisation_id(call, organization_id, "admin")
    region, database, row = await find_row(call, organisation, job_id)
    _require_cancellable(call, row)
    # A running attempt has the epoch that it claimed, and can write only with that.
    end_values = {"finished_at": call.now, "error": CANCELLED, "held_by": None, "epoch": rows.c.epoch + 1}
    if not await _change(call, database, row, rows.c.finished_at.is_(None), end_values):
        raise JobNotCancelled("The job has ended meanwhile.", remediation="Read it with op:jobs_get.")
    return await _answer(call, region, database, row.id)


def _require_cancellable(call: Call, row: Any) -> None:
    if row.finished_at is not None:
        raise JobNotCancelled("The job has ended.", remediation="Read it with op:jobs_get.")
    kind = call.registry.jobs.get(row.kind)
    if kind is not None and isinstance(kind.cancel, str):
        raise JobNotCancelled("This job is part of something larger.", remediation=f"End that with op:{kind.cancel}.")
    if kind is None or kind.cancel is None:
        raise JobNotCancelled


async def _change(call: Call, database: Database, row: Any, where: ColumnElement[bool], values: dict[str, Any]) -> bool:
    """Sets values of a job if it is as `where` says, and wakes its runner. Returns whether it was."""
    change = update(rows).where(rows.c.id == row.id, rows.c.tenant == row.tenant, where)
    if database is call.unit.database:
        is_changed = (await call.execute(change.values(**values))).rowcount == 1
        call.unit.announce(JOBS)
        call.unit.after_commit(call.services.jobs.wake)
        return is_changed
    async with database.writing_unit(lock=None) as unit:
        is_changed = (await unit.execute(change.values(**values))).rowcount == 1
        unit.announce(JOBS)
        unit.after_commit(call.services.jobs.wake)
    return is_changed


async def _answer(call: Call, region: str, database: Database, job_id: str) -> OneJob:
    call.audit.resource_id = job_id[:100]
    query = select(rows).where(rows.c.id == job_id)
    (row,) = await read_rows(call, database, query)
    return {"job": render_detail(call.registry.jobs, region, row)}
