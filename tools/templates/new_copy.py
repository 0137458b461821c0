"""The app of a clone: its row, its rows in the installation's own database, and who is told."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import func, insert, select, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import Services
from baobab.tools.core.app_clones import Ability, ClonedRows, CloneRefused, Cloning
from baobab.tools.core.auth.keys import key_row
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import api_keys, apps, members
from baobab.tools.core.limits.plan_room import cap_of_apps, hold_plan
from baobab.tools.core.new_apps import build_app_row, find_free_subdomain, insert_app_row
from baobab.tools.templates.sources import select_source_of_job
from baobab.tools.templates.survey import list_rules
from baobab.tools.templates.tables import clone_jobs, clone_origins, clone_webhooks, seal_context

COPIED = ("display_name", "access_mode", "storage_config", "jwt_config")
"""The columns of an app that its clone has, too."""
WITHHELD = ("allowed_origins", "auth_hook_function", "user_tools")
"""Those that the clone has once its owner sets them."""
LONGEST_NAME = 63
_MOST_LEFT_OUT = 200
_MOST_WARNINGS = 50


async def make_app(
    services: Services,
    toolsets: Iterable[Any],
    unit: Unit,
    row: Any,
    cloning: Cloning,
    unfilled_keys: Mapping[str, list[str]] | None,
    left_out: Sequence[Ability],
) -> Mapping[str, Any]:
    """Makes the app of a clone in a unit, and returns what the row of the job says of it. Raises CloneRefused.

    unfilled_keys: which environment variables of which functions its owner must fill in; None if none.
    left_out: what the template can do and the copy cannot.
    What could have changed while it was copied is looked at once more: the offer, the plan, the name, the member.
    """
    source = (await unit.execute(select_source_of_job(row).with_for_update(of=apps))).mappings().first()
    if source is None:
        raise CloneRefused("The template is no longer offered.")
    await _require_place(unit, row)
    name = await find_free_name(unit, row.organisation_id, row.name)
    if name != row.name:
        cloning.warn(f"Meanwhile the organisation got an app named {row.name}, so the copy is named {name}.")
    settings = {column: source[column] for column in COPIED}
    new_row = build_app_row(
        services,
        row.dest_app_id,
        row.organisation_id,
        name,
        subdomain=await find_free_subdomain(unit, services, name),
        region=row.dest_region,
        template_source_app_id=row.source_app_id,
        repo_latest_snapshot=source["repo_latest_snapshot"],
        **settings,
    )
    while not await insert_app_row(unit, new_row):
        new_row["subdomain"] = await find_free_subdomain(unit, services, name)
    for rule in list_rules(toolsets):
        if isinstance(rule, ClonedRows) and rule.is_home:
            await rule.copy(cloning, unit.execute)
    await unit.execute(update(apps).where(apps.c.id == row.source_app_id).values(fork_count=apps.c.fork_count + 1))
    origin = {
        "app_id": row.dest_app_id,
        "job_id": row.id,
        "source_app_id": row.source_app_id,
        "source_name": source["name"],
        "withheld": {
            **{column: source[column] for column in WITHHELD if source[column]},
            "left_out": [
                {"kind": each.kind, "name": each.name, "says": each.says, "tool": each.tool}
                for each in left_out[:_MOST_LEFT_OUT]
            ],
        },
        "unfilled_env_vars": unfilled_keys,
        "created_at": services.clock.now(),
    }
    await unit.execute(insert(clone_origins), origin)
    await _mint_keys(services, unit, row)
    for subject, key in (("app", row.dest_app_id), ("app", row.source_app_id)):
        await services.notices.publish(unit, subject, key)
    await services.notices.publish(unit, "resources", f"organisation:{row.organisation_id}")
    data = {"name": name, "region": row.dest_region, "organization_id": row.organisation_id}
    await services.jobs.emit(unit, "app.created", app_id=row.dest_app_id, data=data, tenant=row.organisation_id)
    is_told = select(clone_webhooks.c.id).where(clone_webhooks.c.id == row.source_app_id)
    if (await unit.execute(is_told)).first() is not None:
        arguments = {"clone_job_id": row.id, "turn": 1}
        await services.jobs.enqueue(unit, "clones_tell", arguments, tenant=source["organisation_id"])
    return {"unfilled_env_vars": unfilled_keys, "name": name}


def warn_of_left_out(cloning: Cloning, left_out: Sequence[Ability]) -> None:
    """Says what the template can do and the copy cannot, because it depends on what is never copied."""
    for each in left_out[:_MOST_WARNINGS]:
        cloning.warn(f"Not copied: {each.says}")
    if len(left_out) > _MOST_WARNINGS:
        cloning.warn(f"There are {len(left_out) - _MOST_WARNINGS} more such things that are not copied.")


async def find_free_name(unit: Unit, organisation_id: str, name: str) -> str:
    """Returns a name that no app of an organisation has: the given one, or with a number after it."""
    of_organisation = apps.c.organisation_id == organisation_id
    taken_names = set((await unit.execute(select(apps.c.name).where(of_organisation))).scalars())
    if name not in taken_names:
        return name
    short = name[: LONGEST_NAME - 6]
    return next(each for number in range(2, 100_000) if (each := f"{short}-{number}") not in taken_names)


async def count_apps(unit: Unit, organisation_id: str) -> int:
    query = select(func.count()).select_from(apps).where(apps.c.organisation_id == organisation_id)
    return int((await unit.execute(query)).scalar_one())


async def _require_place(unit: Unit, row: Any) -> None:
    """Raises CloneRefused unless whoever asked is still a member, and the plan has room for one more app."""
    is_member = (members.c.organisation_id == row.organisation_id, members.c.account_id == row.account_id)
    role = (await unit.execute(select(members.c.role).where(*is_member))).scalar()
    if role is None or role == APPROVER:
        raise CloneRefused("Whoever asked for the clone no longer belongs to the organisation that was to have it.")
    plan = await hold_plan(unit, row.organisation_id)
    cap = await cap_of_apps(unit, row.organisation_id, plan)
    if cap is not None and await count_apps(unit, row.organisation_id) >= cap:
        raise CloneRefused(f"The plan {plan.name} has room for {cap} apps, and the organisation has as many.")


async def _mint_keys(services: Services, unit: Unit, row: Any) -> None:
    """Writes down the keys of the new app that are made for its functions; the functions have their texts."""
    if row.env_values is None:
        return
    values = json.loads(services.vault.open(row.env_values, seal_context(clone_jobs, "env_values", row.id)))
    for key_to_mint in values.get("minted", ()):
        text = values["env"][key_to_mint["fn_name"]][key_to_mint["key"]]
        new_row = key_row(
            services,
            text,
            f"{key_to_mint['fn_name']}: {key_to_mint['key']}"[:100],
            [f"app:{row.dest_app_id}", "ai:gateway"],
            organisation_id=row.organisation_id,
            account_id=row.account_id,
            app_id=row.dest_app_id,
            made_by=row.maker.get("key_id"),
        )
        await unit.execute(insert(api_keys), new_row)
