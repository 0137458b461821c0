"""The job that deletes what no snapshot refers to any more."""

import contextlib

from baobab.tools.core import AppNotFound, Job, RetryLater
from baobab.tools.repo.deploying import deploy_latest
from baobab.tools.repo.tables import FREEZES
from baobab.tools.repo.toolset import repo

_MOVING_SECONDS = 10.0


@repo.job(at_once=2, drop=True)
async def repo_deploy_functions(job: Job, app_id: str) -> None:
    """Deploys the functions of the snapshot that was pushed last, until there is no later one."""
    with contextlib.suppress(AppNotFound):
        while await deploy_latest(job, app_id):
            pass


@repo.job()
async def repo_erase(job: Job, app_id: str, keys: list[str]) -> None:
    """Delete the bytes of contents whose rows are gone, wherever the app has been since."""
    services = job.services
    with contextlib.suppress(AppNotFound):
        stores = services.stores_of((await services.directory.app(app_id)).region)
        async with stores.database.reading() as connection:
            if await FREEZES.is_frozen(connection.execute, app_id):
                # A copy in progress may include these bytes.
                raise RetryLater(_MOVING_SECONDS, "the app is being moved")
    for stores in list(services.regions.values()):
        for key in keys:
            await stores.objects.delete(key)
