"""Functions that a push deploys: the files of the folder `functions`, with the right of whoever committed them.

One job at a time does this for an app, and goes on until the snapshot that was committed last is done. So a snapshot
never overtakes a later one.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from baobab.runtime.functions.source_files import (
    FileRefused,
    find_settings_name,
    is_source,
    read_file_name,
    read_settings,
)
from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import AppMigrating, BaobabError, Call, Caller, Job, RateLimited, RetryLater
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.access import find_role
from baobab.tools.core.auth.directory import App
from baobab.tools.core.context import RequestContext
from baobab.tools.core.jobs import OUTAGES
from baobab.tools.core.stores import Stores
from baobab.tools.repo.contents import find_blobs
from baobab.tools.repo.tables import FREEZES, build_key, repo_settings, repo_snapshots

DEPLOY = "repo_deploy_functions"
FOLDER = "functions/"
_DEPLOYING = "functions_deploy"
_MOST_BYTES = 2**20
_MOST_FUNCTIONS = 100
_LOST = timedelta(hours=1)
"""A job that has not ended after this time is not waited for: a later push begins another."""
_MOVING_SECONDS, _OUTAGE_SECONDS = 10.0, 15.0
_columns = repo_settings.c


class _PusherGone(Exception):
    """Whoever committed may not deploy. The text says why."""


async def find_settings(execute: Execute, app_id: str) -> Any:
    """Returns the row of an app's settings, or None."""
    return (await execute(select(repo_settings).where(_columns.app_id == app_id))).first()


async def request_deployment(call: Call, unit: Unit, snapshot_id: str) -> None:
    """Has the functions of a snapshot deployed if the app is set to it. unit: holds the app's lock.

    What an agent's run commits deploys nothing, since no graph can deploy: not either if somebody has approved the
    commit, who saw no code of functions.
    """
    app = call.require_app()
    row = await find_settings(unit.execute, app.id)
    if row is None or not row.deploys_functions:
        return
    is_run = call.context.step is not None or call.approved_attempt is not None
    values: dict[str, Any] = {
        "snapshot_id": snapshot_id,
        "pusher": None if is_run else proposers.encode_caller(call.caller),
    }
    if row.job_id is None or row.job_at < call.now - _LOST:
        job_id = call.services.ids.uuid()
        await call.services.jobs.enqueue(unit, DEPLOY, {"app_id": app.id}, job_id=job_id, tenant=app.organisation_id)
        values |= {"job_id": job_id, "job_at": call.now}
    await unit.execute(update(repo_settings).where(_columns.app_id == app.id).values(**values))


async def deploy_latest(job: Job, app_id: str) -> bool:
    """Deploys the snapshot that was committed last. Returns whether a later one was committed meanwhile.

    Raises AppNotFound, and RetryLater while something passing is in the way.
    """
    services = job.services
    app = await services.directory.app(app_id)
    stores = services.stores_of(app.region)
    async with stores.database.reading() as connection:
        row = await find_settings(connection.execute, app_id)
        if row is None or row.job_id != job.id:
            # Another job does it now, or this one has ended before.
            return False
        if await FREEZES.is_frozen(connection.execute, app_id):
            raise RetryLater(_MOVING_SECONDS, "the app is being moved")
        is_it = (repo_snapshots.c.app_id == app_id, repo_snapshots.c.id == row.snapshot_id)
        manifest = (await connection.execute(select(repo_snapshots.c.manifest).where(*is_it))).scalar()
    digests, results, error = dict(row.digests), [], None
    try:
        if not row.deploys_functions or manifest is None:
            raise _PusherGone("It was switched off, or the snapshot was removed, before it was deployed.")
        caller = await _restore_pusher(job, app, row.pusher)
        results = await _deploy_files(job, app, stores, caller, manifest, digests)
    except _PusherGone as exc:
        error = str(exc)
    except StoreUnavailable as exc:
        raise RetryLater(_OUTAGE_SECONDS, "the object store does not answer") from exc
    at = services.clock.now().isoformat()
    outcome = {"snapshot_id": row.snapshot_id, "at": at, "functions": results, "error": error}
    async with stores.database.writing_unit(lock=app_id) as unit:
        if await FREEZES.is_frozen(unit.execute, app_id):
            raise RetryLater(_MOVING_SECONDS, "the app is being moved")
        present_row = await find_settings(unit.execute, app_id)
        if present_row is None or present_row.job_id != job.id:
            return False
        is_last = (present_row.snapshot_id, present_row.pusher) == (row.snapshot_id, row.pusher)
        values = {"digests": digests, "outcome": outcome, **({"job_id": None, "job_at": None} if is_last else {})}
        await unit.execute(update(repo_settings).where(_columns.app_id == app_id).values(**values))
    return not is_last


async def _restore_pusher(job: Job, app: App, pusher: dict[str, Any] | None) -> Caller:
    """Returns whoever committed, with their present rights. Raises _PusherGone."""
    if pusher is None:
        raise _PusherGone("An agent committed it, or somebody whose calls wait for approval. Commit it yourself.")
    services = job.services
    try:
        async with services.database.reading() as connection:
            now = services.clock.now()
            caller = await proposers.restore_caller(connection.execute, services.credits, pusher, now)
    except BaobabError as error:
        raise _PusherGone(error.message) from error
    if not job.registry.may_call(_DEPLOYING, caller, await find_role(services.directory, caller, app)):
        raise _PusherGone(
            "Whoever committed it may not deploy functions: that needs an admin, or a key without limits."
        )
    return caller


async def _deploy_files(
    job: Job, app: App, stores: Stores, caller: Caller, manifest: Mapping[str, Any], digests: dict[str, str]
) -> list[dict[str, Any]]:
    """Deploys the functions whose files have changed, and returns what became of each function of the folder.

    digests: of what was deployed of each before; changed to what it is now.
    """
    files = {
        file["path"].removeprefix(FOLDER): file["sha256"]
        for file in manifest["files"]
        if file["path"].startswith(FOLDER) and "/" not in file["path"].removeprefix(FOLDER)
    }
    results: list[dict[str, Any]] = []
    for number, file_name in enumerate(sorted(name for name in files if is_source(name))):
        name = file_name.rpartition(".")[0]
        result: dict[str, Any] = {"name": name, "version": None, "error": None}
        results.append(result)
        settings_name = find_settings_name(file_name)
        digest = hashlib.sha256(
            json.dumps([file_name, files[file_name], files.get(settings_name)]).encode()
        ).hexdigest()
        if digests.get(name) == digest:
            continue
        try:
            if number >= _MOST_FUNCTIONS:
                raise FileRefused(f"The folder has more than {_MOST_FUNCTIONS} functions.")
            name, language = read_file_name(file_name)
            settings: dict[str, Any] = {}
            if settings_name in files:
                settings = read_settings(await _read_text(stores, app.id, files[settings_name]))
            code = await _read_text(stores, app.id, files[file_name])
            message = manifest.get("message", "")[:500] or None
            arguments = {"message": message, **settings, "app_id": app.id, "name": name, "code": code}
            context = RequestContext("job", job.id, base_url=job.services.options.base_url)
            tool = job.registry.find(_DEPLOYING)
            deployment, _ = await job.registry.run(tool, {**arguments, "language": language}, caller, context)
        except OUTAGES as exc:
            raise RetryLater(_OUTAGE_SECONDS, "a store does not answer") from exc
        except (AppMigrating, RateLimited) as exc:
            raise RetryLater(exc.retry_after or _MOVING_SECONDS, exc.message) from exc
        except (BaobabError, FileRefused) as exc:
            words = f"{exc.message} {exc.remedy}" if isinstance(exc, BaobabError) else str(exc)
            result["error"] = words.strip()[:1000]
        else:
            result["version"], digests[name] = deployment["version"], digest
            # At once, so that another attempt at the job does not deploy it again.
            async with stores.database.writing_unit(lock=app.id) as unit:
                is_ours = (_columns.app_id == app.id, _columns.job_id == job.id)
                await unit.execute(update(repo_settings).where(*is_ours).values(digests=digests))
    for name in [name for name in digests if name not in {result["name"] for result in results}]:
        # The function itself stays: to delete is not what a push was asked for.
        del digests[name]
    return results


async def _read_text(stores: Stores, app_id: str, sha256: str) -> str:
    """Returns the text of a file. Raises FileRefused."""
    async with stores.database.reading() as connection:
        blobs = await find_blobs(connection.execute, app_id, [sha256])
    blob = blobs.get(sha256)
    if blob is None:
        raise FileRefused("Its content was removed before it was deployed. Push it again.")
    if blob.size_bytes > _MOST_BYTES:
        raise FileRefused(f"It has {blob.size_bytes} bytes; a function has at most {_MOST_BYTES}.")
    try:
        reader = await stores.objects.get(build_key(app_id, sha256, blob.stored_as))
        if reader is None:
            raise FileRefused("Its content is not there any more. Push it again.")
        try:
            content = b"".join([chunk async for chunk in reader])
        finally:
            await reader.aclose()
        return content.decode("utf-8-sig")
    except ObjectDamaged as exc:
        raise FileRefused("Its stored content is damaged. Push it again.") from exc
    except UnicodeDecodeError as exc:
        raise FileRefused("It is not in UTF-8.") from exc
