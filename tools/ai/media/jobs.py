"""The jobs of generation: the one that makes an image or a video, and the sweep that cleans up.

The sweep releases the credits of jobs that nobody polls, resumes jobs without a worker, and deletes old files and rows.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, exists, func, select, tuple_, update

from baobab.runtime.gateway.errors import ModelNotFound, UpstreamMalformed
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.media.media import Media
from baobab.runtime.gateway.media.model import MediaRequest, Progress
from baobab.runtime.gateway.model import Model
from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.objects.errors import TooLarge
from baobab.storage.sql.database import Database
from baobab.tools.ai.media.submission import JOB, compute_charge
from baobab.tools.ai.media.tables import FREEZES, HOLDING, UNENDED, folder, generation_jobs, is_job
from baobab.tools.ai.media.toolset import media
from baobab.tools.core import AppMigrating, AppNotFound, BaobabError, Job, RetryLater, Services, Unavailable
from baobab.tools.core.limits.credits import Reservation
from baobab.tools.core.stores import Stores

ABANDONED = timedelta(minutes=5)
"""After so long without a poll the credits are released; the job goes on, and is charged when it is polled."""
FILES_KEPT, ROWS_KEPT = timedelta(days=30), timedelta(days=90)
_ROUND = 200
_columns = generation_jobs.c
_THAWED = FREEZES.is_thawed(_columns.app_id)
_WORKING = exists().where(jobs.c.id == _columns.worker, jobs.c.finished_at.is_(None))


@media.job(every=60)
async def media_sweep(job: Job) -> None:
    """Release credits, resume jobs, and delete old files in every region."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        await _release(services, database)
        await _resume_jobs(services, database)
        await _delete_files(services, database)


async def _release(services: Services, database: Database) -> None:
    now = services.clock.now()
    for row in await _some(database, HOLDING, _columns.polled_at < now - ABANDONED, order=_columns.polled_at):
        await services.credits.release(Reservation(row.reservation_id, row.organisation_id, row.reserved))
        await _write(database, row, HOLDING, released_at=now)


async def _resume_jobs(services: Services, database: Database) -> None:
    """Starts a worker for jobs that came with a move, and fails jobs whose worker has given up."""
    now = services.clock.now()
    for row in await _some(database, UNENDED, ~_WORKING, order=_columns.created_at):
        if row.worker is not None:
            error = "This server could not finish the job."
            values = {"status": "failed", "error": error, "ended_at": now, "request": None, "handle": None}
            await _write(database, row, UNENDED, _columns.worker == row.worker, **values)
            continue
        worker = f"{JOB}:{services.ids.uuid()}"
        condition = (is_job(row.app_id, row.id), UNENDED, _columns.worker.is_(None), _THAWED)
        async with database.writing_unit(lock=row.app_id) as unit:
            if (await unit.execute(update(generation_jobs).where(*condition).values(worker=worker))).rowcount:
                arguments = {"app_id": row.app_id, "generation_id": row.id}
                await services.jobs.enqueue(unit, JOB, arguments, job_id=worker, tenant=row.organisation_id)


async def _delete_files(services: Services, database: Database) -> None:
    """Deletes old files, and later their rows. A job that nobody has polled by then is not charged."""
    now = services.clock.now()
    is_old = (_columns.ended_at < now - FILES_KEPT, _columns.emptied_at.is_(None))
    for row in await _some(database, *is_old, order=_columns.ended_at):
        for stores in list(services.regions.values()):
            if stores.database is database:
                await stores.objects.delete_all(folder(row.app_id, row.id))
        await _write(database, row, _columns.emptied_at.is_(None), emptied_at=now)
        await _write(database, row, _columns.settled_at.is_(None), settled_at=now, cost=0)
    key = tuple_(_columns.app_id, _columns.id)
    expired_keys = select(*key.clauses).where(_columns.ended_at < now - ROWS_KEPT, _THAWED).limit(_ROUND)
    async with database.writing(lock=None) as connection:
        await connection.execute(delete(generation_jobs).where(key.in_(expired_keys)))


async def _some(database: Database, *conditions: Any, order: Any) -> list[Any]:
    """Returns some rows that may be changed, taking the organisations in turn; the next round finds the rest."""
    turn = func.row_number().over(partition_by=_columns.organisation_id, order_by=order)
    query = select(generation_jobs).where(*conditions, _THAWED).order_by(turn, order).limit(_ROUND)
    async with database.reading() as connection:
        return list((await connection.execute(query)).all())


async def _write(database: Database, row: Any, *conditions: Any, **values: Any) -> None:
    change = update(generation_jobs).where(is_job(row.app_id, row.id), *conditions).values(**values)
    try:
        async with database.writing(lock=row.app_id) as connection:
            await FREEZES.require_thawed(connection.execute, row.app_id)
            await connection.execute(change)
    except AppMigrating:
        return


LIFETIME = timedelta(hours=24)
"""The time after which an unfinished job expires."""


MOST_BYTES = {"image": 50 * 2**20, "video": 500 * 2**20}
"""The most bytes of one file."""


_MOST_TRIES, _MOST_TRIES_ACCEPTED = 6, 60
"""How often in a row the provider may fail before the job does; more often once it has accepted and may charge."""


_LONGEST_PAUSE_SECONDS = 60.0


_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.5, 15.0


_MOVING_SECONDS = 10.0


_LONGEST_ERROR = 1000


# At most six at once, because a job for an image waits until it is made; the other slots are for other jobs.
@media.job(at_once=6, drop=True)
async def media_generate(job: Job, app_id: str, generation_id: str) -> None:
    """Make one image or video, or take the next step towards it."""
    async with job.database.reading() as connection:
        query = select(generation_jobs).where(is_job(app_id, generation_id))
        row = (await connection.execute(query)).first()
        is_frozen = await FREEZES.is_frozen(connection.execute, app_id)
    if row is None:
        await _forget(job, app_id, generation_id)
        return
    if row.ended_at is not None or row.worker != job.id:
        return
    if is_frozen:
        if job.services.clock.now() - row.created_at > 2 * LIFETIME:
            # This is a copy that a move has left behind.
            return
        raise RetryLater(_MOVING_SECONDS, "the app is being moved")
    stores = await _stores(job, app_id)
    await _Attempt(job, row, stores).advance()


async def _stores(job: Job, app_id: str) -> Stores:
    services = job.services
    try:
        region = (await services.directory.app(app_id)).region
    except AppNotFound:
        raise RetryLater(_MOVING_SECONDS, "the app was deleted; its rows will be") from None
    stores = services.regions.get(region)
    if stores is None or stores.database is not job.database:
        raise RetryLater(_FIRST_LOOK_SECONDS, "this process has not heard yet where the app is")
    return stores


async def _forget(job: Job, app_id: str, generation_id: str) -> None:
    """Deletes the files of a job whose app was deleted or moved away."""
    for stores in list(job.services.regions.values()):
        if stores.database is job.database:
            await stores.objects.delete_all(folder(app_id, generation_id))


class _Attempt:
    """One attempt at one generation job, whose row records its progress.

    Several attempts may run; only the latest one's writes count. The provider is asked to start again only while there
    is no record that it has accepted. Each attempt saves its files in a folder of its own, so that they never mix.
    """

    def __init__(self, job: Job, row: Any, stores: Stores) -> None:
        self._job = job
        self._row = row
        self._stores = stores
        self._services = job.services
        self._media = self._services.part(Media)
        age = self._services.clock.now() - row.created_at
        self._age = age.total_seconds()
        self._is_late = age > LIFETIME

    async def advance(self) -> None:
        """Takes the next step. Ends the row, or raises RetryLater."""
        if self._row.handle is None and self._is_late:
            await self._expire()
            return
        try:
            await self._step()
        except Unavailable:
            # An outage of this installation, not of the provider: the job runner retries.
            raise
        except TooLarge as exc:
            await self._end("failed", error=f"The result is too large: {exc}.")
        except BaobabError as error:
            await self._record_failure(error)

    async def _step(self) -> None:
        row = self._row
        model = self._services.part(Gateway).get_model(row.model)
        request = MediaRequest(row.request["prompt"], row.request["parameters"], row.request["provider"])
        if row.handle is None:
            progress = await self._media.start_job(model, request, row.id)
        else:
            progress = await self._media.check_job(model, row.handle)
        if progress.status in ("pending", "in_progress"):
            await self._wait(progress)
        elif progress.status == "completed" and progress.renderings:
            try:
                files = await self._save_files(model, progress)
            except UpstreamMalformed as error:
                # Too large, or of another type; a retry would give the same.
                await self._end("failed", error=error.message)
                return
            cost = progress.cost
            if cost is None:
                cost = self._media.get_price(model, request, progress.units)
            # At most the reserved amount: the customer has not agreed to pay more.
            cost = min(compute_charge(self._services.options.ai_markup, cost), row.reserved)
            await self._end("completed", files=files, cost=cost)
        elif progress.status == "completed":
            await self._end("failed", error="The model's provider finished without a result.")
        else:
            await self._end(progress.status, error=progress.error or "The model's provider gave no reason.")

    async def _wait(self, progress: Progress) -> None:
        if self._is_late:
            await self._expire()
            return
        row = self._row
        values = {"status": progress.status, "handle": progress.handle, "tries": 0}
        if any(getattr(row, name) != value for name, value in values.items()):
            await self._write(values)
        # The longer the job has run, the less often it is checked.
        raise RetryLater(min(max(self._age / 4, _FIRST_LOOK_SECONDS), _LAST_LOOK_SECONDS))

    async def _save_files(self, model: Model, progress: Progress) -> list[dict[str, Any]]:
        row, max_bytes = self._row, MOST_BYTES[self._row.kind]
        attempt_folder = f"{folder(row.app_id, row.id)}{self._services.ids.uuid()}"
        files = []
        for index, rendering in enumerate(progress.renderings):
            key = f"{attempt_folder}/{index}"
            chunks = self._media.stream_content(model, rendering, max_bytes)
            object_info = await self._stores.objects.put(
                key, chunks, content_type=rendering.content_type, max_bytes=max_bytes
            )
            files.append({"key": key, "content_type": rendering.content_type, "bytes": object_info.size})
        return files

    async def _record_failure(self, error: BaobabError) -> None:
        """Retries if that may help; otherwise the job has failed with the error's message."""
        row = self._row
        max_tries = _MOST_TRIES if row.handle is None else _MOST_TRIES_ACCEPTED
        # Some models are found only a moment after the start.
        is_temporary = error.status >= 500 or error.status == 429 or isinstance(error, ModelNotFound)
        if not is_temporary or row.tries + 1 >= max_tries or self._is_late:
            await self._end("failed", error=error.message)
            return
        await self._write({"tries": row.tries + 1})
        raise RetryLater(min(2.0 ** (row.tries + 1), _LONGEST_PAUSE_SECONDS), error.message)

    async def _expire(self) -> None:
        await self._end("expired", error="The job did not finish within a day.")

    async def _end(self, status: str, *, error: str | None = None, **values: Any) -> None:
        end_values = {
            "status": status,
            "error": error and error[:_LONGEST_ERROR],
            "ended_at": self._services.clock.now(),
            "request": None,
            "handle": None,
        }
        await self._write({**end_values, **values}, last=True)

    async def _write(self, values: dict[str, Any], *, last: bool = False) -> None:
        condition = (is_job(self._row.app_id, self._row.id), _columns.worker == self._job.id, UNENDED)
        async with self._job.writing(last=last, lock=self._row.app_id) as unit:
            await FREEZES.require_thawed(unit.execute, self._row.app_id)
            if (await unit.execute(update(generation_jobs).where(*condition).values(**values))).rowcount != 1:
                # The row was deleted with its app; the next attempt deletes the files.
                raise RetryLater(0, "the row has changed")
