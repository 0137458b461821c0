"""/v1/{app_id}/repo/settings: whether a push deploys functions, and what became of the last one."""

from datetime import datetime
from typing import Any

from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest
from baobab.tools.repo.deploying import find_settings
from baobab.tools.repo.schemas import RepoSettings
from baobab.tools.repo.tables import FREEZES, repo_settings
from baobab.tools.repo.toolset import repo


@repo.tool("GET /settings", access=AppOwner(), effect="read", taints=True)
async def repo_settings_get(call: Call, app_id: AppId) -> RepoSettings:
    """Read whether a push to the app's repository deploys functions, and what became of the last push."""
    return await _describe(call, app_id)


@repo.tool(
    "PATCH /settings",
    access=AppOwner("admin"),
    effect="write",
    audit=Audit("app.repo.settings", action="update", resource="app"),
    rest=Rest(examples={"deploys_functions": True}),
    guard=Guard(grants=True),
)
async def repo_settings_update(call: Call, app_id: AppId, deploys_functions: bool) -> RepoSettings:
    """Set whether a push to the repository deploys the app's functions.

    It deploys those in the folder `functions` whose files have changed. Off at first, and in each clone. A push deploys
    with the right of whoever commits: functions stay as they are when a key with limits, a member who is no admin, or
    an agent commits.

    deploys_functions: whether pushes from now on deploy them.
    """
    async with FREEZES.writing(call) as unit:
        values = {"deploys_functions": deploys_functions}
        insertion = build_upsert(unit.database.dialect, repo_settings).values(app_id=app_id, digests={}, **values)
        await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id"], set_=values))
    call.audit.resource_id = app_id
    call.audit.data |= values
    return await _describe(call, app_id)


async def _describe(call: Call, app_id: str) -> RepoSettings:
    async with call.reading() as execute:
        row = await find_settings(execute, app_id)
    if row is None:
        return {"deploys_functions": False, "deploying": None, "last_deployment": None}
    outcome: Any = row.outcome
    last: Any = None if outcome is None else {**outcome, "at": datetime.fromisoformat(outcome["at"])}
    return {
        "deploys_functions": row.deploys_functions,
        "deploying": None if row.job_id is None else row.snapshot_id,
        "last_deployment": last,
    }
