"""Clones: /v1/templates/{template_id}/clone, and the jobs that make them."""

import json
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import func, insert, select, update

from baobab.tools.core import AnyAccount, Audit, Call, RateLimited, Rest, Text, Uuid
from baobab.tools.core.app_clones import Place
from baobab.tools.core.auth import keys, proposers
from baobab.tools.core.auth.membership import resolve_organisation_id
from baobab.tools.core.cells import Cells, RegionFull
from baobab.tools.core.limits.plan_room import ProjectLimitReached, cap_of_apps, hold_plan, require_room
from baobab.tools.core.waiting import Waits
from baobab.tools.templates.errors import (
    CloneJobNotFound,
    CloneNameTaken,
    CloneNotFailed,
    CloneRegionUnknown,
    NoSnapshot,
    TemplateNotFound,
    TooManyClones,
    UnknownFunction,
)
from baobab.tools.templates.new_copy import count_apps, find_free_name
from baobab.tools.templates.schemas import CloneJob, CloneStarted, EnvValues, KeyToMint, NextAction, TemplateId
from baobab.tools.templates.sources import select_source
from baobab.tools.templates.survey import list_env
from baobab.tools.templates.tables import clone_jobs, seal_context
from baobab.tools.templates.toolset import templates

MOST_AT_ONCE, MOST_AN_HOUR = 3, 5
_HOUR = timedelta(hours=1)
_columns = clone_jobs.c

AppName = Annotated[
    str,
    Text(63, min_length=1, pattern=r"^[a-z0-9][a-z0-9_-]*$"),
    Field(description="Lower case letters, digits, `_` and `-`; unique in its organisation.", examples=["my-desk"]),
]
JobId = Annotated[Uuid, Field(description="The clone job, as op:templates_clone names it.")]


def _is_over(job: CloneJob) -> bool:
    return job["completed_at"] is not None


def _add_end(result: Any, job: CloneJob) -> Any:
    return {**result, **{name: job[name] for name in ("status", "dest_app_id", "error_message")}}


_TO_END = Waits(_is_over, "clone_jobs_get", lambda result: {"job_id": result["job_id"]}, _add_end)


@templates.tool(
    "POST /templates/{template_id}/clone",
    waits=_TO_END,
    access=AnyAccount(),
    effect="write",
    raises=(
        TemplateNotFound,
        NoSnapshot,
        CloneRegionUnknown,
        RegionFull,
        CloneNameTaken,
        ProjectLimitReached,
        TooManyClones,
        RateLimited,
        UnknownFunction,
    ),
    audit=Audit("template.clone", action="create", resource="clone_job"),
    rest=Rest(status=202, examples={"name": "my-desk"}),
)
async def templates_clone(
    call: Call,
    template_id: TemplateId,
    name: AppName | None = None,
    region: Annotated[str, Text(40, min_length=1)] | None = None,
    organization_id: Uuid | None = None,
    env_var_values: EnvValues | None = None,
    auto_mint_api_key: Annotated[list[KeyToMint], Field(max_length=100)] | None = None,
) -> CloneStarted:
    """Clone a template: a new app with its tables, policies, agents, code and seed rows, and none of its secrets.

    Look at it first (op:templates_preflight). What acts by itself is switched off in the copy. The job goes on in the
    background; read it with op:clone_jobs_get, or wait with `wait_seconds`.

    name: of the new app; derived from the template's when left out.
    region: where the copy will live; the template's when left out.
    organization_id: the organisation that will own it; the caller's when left out.
    env_var_values: the values of environment variables, by function and name.
    auto_mint_api_key: the variables that get a new key of the copy.
    """
    account = call.account
    organisation = await resolve_organisation_id(call, organization_id)
    source = (await call.services.database.execute(select_source(template_id, call.caller, only_listed=False))).first()
    if source is None:
        raise TemplateNotFound
    if source.repo_latest_snapshot is None:
        raise NoSnapshot
    cells = call.services.of(Cells)
    cell = call.services.options.cells.get(source.region)
    candidates = cells.find(region or (None if cell is None else cell.geography))
    if not candidates:
        details = {"regions": cells.list_region_names()}
        raise CloneRegionUnknown(f"`region`: there is no region `{region}`.", details=details)
    values = await _collect_values(call, source, env_var_values or {}, auto_mint_api_key or [])
    plan = await hold_plan(call.unit, organisation)
    await call.hold(account.account_id)
    await _require_turn(call, account.account_id)
    under_way = select(func.count()).where(_columns.organisation_id == organisation, _columns.completed_at.is_(None))
    app_count = await count_apps(call.unit, organisation) + int((await call.execute(under_way)).scalar_one())
    cap = await cap_of_apps(call.unit, organisation, plan)
    require_room("apps", plan, cap, app_count, error=ProjectLimitReached)
    free_name = await find_free_name(call.unit, organisation, name or source.name)
    if name is not None and free_name != name:
        raise CloneNameTaken(f"The organisation already has an app named {name}.")
    job_id, now = call.services.ids.uuid(), call.now
    row = {
        "id": job_id,
        "source_app_id": template_id,
        "dest_app_id": call.services.ids.app(),
        "dest_region": await cells.choose(call.execute, candidates),
        "account_id": account.account_id,
        "maker": proposers.encode_caller(call.caller),
        "organisation_id": organisation,
        "name": free_name,
        "status": "pending",
        "is_failing": False,
        "attempts": 0,
        "retry_count": 0,
        "env_values": _seal(call, job_id, values),
        "warnings": [],
        "created_at": now,
        "started_at": now,
    }
    await call.execute(insert(clone_jobs), row)
    await _enqueue(call, job_id, 0, organisation)
    call.audit.resource_id, call.audit.organisation_id = job_id, organisation
    call.audit.data |= {"source_app_id": template_id, "name": free_name}
    return {"job_id": job_id, "status": "pending"}


@templates.tool(
    "GET /clone-jobs/{job_id}",
    waits=Waits(_is_over),
    access=AnyAccount(),
    effect="read",
    raises=(CloneJobNotFound,),
)
async def clone_jobs_get(call: Call, job_id: JobId) -> CloneJob:
    """Read how far a clone of yours is, and what is left to fill in. It ends as `completed` or `failed`."""
    row = await _get_row(call, job_id)
    return {
        "job_id": row.id,
        "status": row.status,
        "source_app_id": row.source_app_id,
        "dest_app_id": row.dest_app_id if row.status == "completed" else None,
        "dest_region": row.dest_region,
        "name": row.name,
        "retry_count": row.retry_count,
        "error_message": row.error_message,
        "warnings": row.warnings,
        "unfilled_env_vars": row.unfilled_env_vars,
        "created_at": row.created_at,
        "completed_at": row.completed_at,
        "_meta": {"next_actions": _list_next_actions(row)},
    }


@templates.tool(
    "POST /clone-jobs/{job_id}/retry",
    waits=_TO_END,
    access=AnyAccount(),
    effect="write",
    raises=(CloneJobNotFound, CloneNotFailed, TooManyClones),
    audit=Audit("template.clone.retry", action="update", resource="clone_job"),
    rest=Rest(status=202),
)
async def clone_jobs_retry(call: Call, job_id: JobId) -> CloneStarted:
    """Try a failed clone again, as the same job."""
    row = await _get_row(call, job_id)
    if row.status != "failed":
        raise CloneNotFailed(f"The clone is {row.status}, so it cannot be tried again.")
    await call.hold(row.account_id)
    await _require_turn(call, row.account_id, is_retry=True)
    values = {
        "status": "pending",
        # Another id, so that what an earlier attempt may still write belongs to no app.
        "dest_app_id": call.services.ids.app(),
        "is_failing": False,
        "error_message": None,
        "attempts": 0,
        "retry_count": row.retry_count + 1,
        "warnings": [],
        "started_at": call.now,
        "completed_at": None,
    }
    is_it = (_columns.id == job_id, _columns.status == "failed", _columns.retry_count == row.retry_count)
    if (await call.execute(update(clone_jobs).where(*is_it).values(**values))).rowcount != 1:
        raise CloneNotFailed
    await _enqueue(call, job_id, row.retry_count + 1, row.organisation_id)
    call.audit.resource_id, call.audit.organisation_id = job_id, row.organisation_id
    return {"job_id": job_id, "status": "pending"}


async def _get_row(call: Call, job_id: str) -> Any:
    """Returns the row of a clone job of the caller's. Raises CloneJobNotFound."""
    account = call.account
    conditions = [_columns.id == job_id, _columns.account_id == account.account_id]
    if account.key_id is not None:
        conditions.append(_columns.organisation_id == account.organisation_id)
    row = (await call.execute(select(clone_jobs).where(*conditions))).first()
    if row is None:
        raise CloneJobNotFound
    return row


async def _require_turn(call: Call, account_id: str, *, is_retry: bool = False) -> None:
    """Raises TooManyClones and RateLimited. The call holds the lock of the account."""
    of_account = _columns.account_id == account_id
    under_way = select(func.count()).where(of_account, _columns.completed_at.is_(None))
    if int((await call.execute(under_way)).scalar_one()) >= MOST_AT_ONCE:
        raise TooManyClones(details={"limit": MOST_AT_ONCE})
    if is_retry:
        return
    since = call.now - _HOUR
    recent = select(_columns.created_at).where(of_account, _columns.created_at > since).order_by(_columns.created_at)
    times = (await call.execute(recent)).scalars().all()
    if len(times) >= MOST_AN_HOUR:
        seconds = (times[-MOST_AN_HOUR] - since).total_seconds()
        raise RateLimited(max(1, round(seconds)), MOST_AN_HOUR, int(_HOUR.total_seconds()))


async def _collect_values(
    call: Call, source: Any, env_values: dict[str, dict[str, str]], to_mint: list[KeyToMint]
) -> dict[str, Any] | None:
    """Returns what is kept of the values that came with the request. Raises UnknownFunction."""
    if not env_values and not to_mint:
        return None
    place = Place(source.id, call.services.stores_of(source.region), call.services.vault)
    known_keys = await list_env(call.registry.toolsets, place)
    env = {name: {key: str(value) for key, value in values.items()} for name, values in env_values.items()}
    for key_to_mint in to_mint:
        env.setdefault(key_to_mint["fn_name"], {})[key_to_mint["key"]] = keys.plaintext(call.services.ids)
    for name in env:
        if name not in known_keys:
            raise UnknownFunction(f"The template has no function `{name}`.", details={"functions": sorted(known_keys)})
    return {"env": env, "minted": [dict(key_to_mint) for key_to_mint in to_mint]}


def _seal(call: Call, job_id: str, values: dict[str, Any] | None) -> str | None:
    if values is None:
        return None
    return call.services.vault.seal(json.dumps(values).encode(), seal_context(clone_jobs, "env_values", job_id))


async def _enqueue(call: Call, job_id: str, turn: int, organisation_id: str) -> None:
    arguments, key = {"clone_job_id": job_id}, f"clone:{job_id}:{turn}"
    await call.services.jobs.enqueue(call.unit, "clones_advance", arguments, job_id=key, tenant=organisation_id)


def _list_next_actions(row: Any) -> list[NextAction]:
    if row.status == "failed":
        return [{"action": "retry", "description": "Try the clone again.", "tool": "clone_jobs_retry"}]
    if row.status != "completed":
        return [{"action": "wait", "description": "Wait for its end, with `wait_seconds`.", "tool": "clone_jobs_get"}]
    actions: list[NextAction] = [
        {
            "action": "review",
            "description": "See what the copy can do, and what is still switched off in it.",
            "tool": "clones_review",
        }
    ]
    if row.unfilled_env_vars:
        names = ", ".join(f"{name}: {', '.join(keys)}" for name, keys in row.unfilled_env_vars.items())
        description = f"Fill in the environment variables of the app {row.dest_app_id}: {names}."
        actions.insert(0, {"action": "fill_in", "description": description, "tool": "functions_env_update"})
    return actions
