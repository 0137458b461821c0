"""What waits in a copy of an installation, and how the copy begins to live (docs/decisions/0042-copies.md)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update

from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.copies import CopyMark
from baobab.storage.sql.database import Database
from baobab.tools.core import Call, Services, Unavailable
from baobab.tools.core.job import LEFT_UNDONE, JobKind
from baobab.tools.core.jobs import JOBS
from baobab.tools.system.errors import ChoiceMissing
from baobab.tools.system.schemas import Choice, Installation, WaitingKind

COPY_WAITS = "held: this installation is a copy, which sends and starts nothing until its operator makes it live"
"""What `/health/ready` says of a copy."""
_ROUND = 500


async def describe_installation(services: Services, kinds: Mapping[str, JobKind]) -> Installation:
    """Describes what this installation is. Raises Unavailable if a region does not answer, whose jobs are not known."""
    mark = services.liveness.mark
    if mark is None:
        return {"state": "live", "since": None, "why": None, "waiting": []}
    return {
        "state": "copy",
        "since": mark.since,
        "why": mark.how,
        "waiting": await _list_waiting(services, kinds, mark),
    }


async def drop_waiting(services: Services, kinds: Mapping[str, JobKind]) -> None:
    """Leaves the jobs undone that `describe_installation` lists as such. Called again after a crash, it goes on."""
    mark = services.liveness.mark
    if mark is None:
        return
    for database in _list_databases(services):
        for kind in kinds.values():
            drop = _find_drop(kind)
            if drop is not None:
                await _drop_kind(services, database, kind, mark)
        await database.announce(JOBS)


async def describe_choice(call: Call, waiting: Choice) -> Installation:
    """Returns what this installation is. Raises ChoiceMissing if it is not said what becomes of the jobs in a copy."""
    before = await describe_installation(call.services, call.registry.jobs)
    if waiting is None and before["waiting"]:
        number = sum(each["jobs"] for each in before["waiting"])
        raise ChoiceMissing(
            f"{number} jobs wait in this copy from before it was made, and the original may have done them.",
            details={"waiting": before["waiting"]},
        )
    return before


async def preview_live(call: Call, waiting: Choice = None) -> str:
    """Says what becomes of the jobs that wait, for whoever approves that a copy begins to live."""
    before = await describe_choice(call, waiting)
    if before["state"] == "live":
        return "It lives already."
    number = sum(each["jobs"] for each in before["waiting"])
    undone_number = sum(each["jobs"] for each in before["waiting"] if each["dropped"]) if waiting == "drop" else 0
    return (
        "This copy would send and start things from now on. Of the jobs that wait in it, it would do "
        f"{number - undone_number} and leave {undone_number} undone."
    )


def describe_waiting(waiting: Sequence[WaitingKind], now: datetime) -> list[str]:
    """Returns a line for each kind of job that waits, for the operator."""
    return [
        f"{each['jobs']} {each['kind']}, the oldest {_say_age(each['oldest'], now)} old"
        + ("" if each["dropped"] else " (must be done; not dropped)")
        for each in waiting
    ]


async def _list_waiting(services: Services, kinds: Mapping[str, JobKind], mark: CopyMark) -> list[WaitingKind]:
    counts: dict[str, tuple[int, datetime]] = {}
    query = select(jobs.c.kind, func.count().label("number"), func.min(jobs.c.created_at).label("oldest"))
    query = query.where(jobs.c.finished_at.is_(None), jobs.c.created_at <= mark.since).group_by(jobs.c.kind)
    for database in _list_databases(services):
        async with database.reading() as connection:
            for row in await connection.execute(query):
                number, oldest = counts.get(row.kind, (0, row.oldest))
                counts[row.kind] = (number + row.number, min(oldest, row.oldest))
    waiting: list[WaitingKind] = [
        {
            "kind": kind.name,
            "does": " ".join((kind.work.__doc__ or "").split()),
            "jobs": counts[kind.name][0],
            "oldest": counts[kind.name][1],
            "dropped": _find_drop(kind) is not None,
        }
        for kind in kinds.values()
        # A round of what is done again and again is no work that waits.
        if kind.name in counts and not kind.every and not kind.in_copies
    ]
    return sorted(waiting, key=lambda each: -each["jobs"])


def _list_databases(services: Services) -> Iterable[Database]:
    if services.closed_regions:
        raise Unavailable(f"The stores of the region {services.closed_regions[0]} do not answer; jobs may wait there.")
    return dict.fromkeys(stores.database for stores in services.regions.values())


def _find_drop(kind: JobKind) -> Any:
    return kind.drop or (True if kind.cancel is True else None)


async def _drop_kind(services: Services, database: Database, kind: JobKind, mark: CopyMark) -> None:
    drop, last = _find_drop(kind), ""
    is_old = (jobs.c.kind == kind.name, jobs.c.finished_at.is_(None), jobs.c.created_at <= mark.since)
    while True:
        query = select(jobs.c.id, jobs.c.arguments).where(*is_old, jobs.c.id > last).order_by(jobs.c.id).limit(_ROUND)
        async with database.reading() as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return
        last = rows[-1].id
        if drop is not True:
            await drop(services, database, [row.arguments for row in rows])
            continue
        values = {"finished_at": services.clock.now(), "error": LEFT_UNDONE, "held_by": None, "epoch": jobs.c.epoch + 1}
        async with database.writing(lock=None, bulk=True) as connection:
            await connection.execute(
                update(jobs).where(*is_old, jobs.c.id.in_([row.id for row in rows])).values(**values)
            )


def _say_age(moment: datetime, now: datetime) -> str:
    minutes = max(int((now - moment).total_seconds() // 60), 0)
    for size, unit in ((1440, "days"), (60, "hours")):
        if minutes >= 2 * size:
            return f"{minutes // size} {unit}"
    return f"{minutes} minutes"
