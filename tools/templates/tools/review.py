"""/v1/{app_id}/clone-review: where an app comes from, what it can do, and what its owner has not switched on."""

from typing import Any

from sqlalchemy import select

from baobab.tools.core import AppId, AppOwner, Call
from baobab.tools.core.app_clones import Ability, Place
from baobab.tools.core.auth.tables import apps
from baobab.tools.templates.new_copy import WITHHELD
from baobab.tools.templates.schemas import CloneReview, NextAction
from baobab.tools.templates.survey import list_env, survey_app
from baobab.tools.templates.tables import clone_origins
from baobab.tools.templates.tools.templates import describe_abilities, list_withheld
from baobab.tools.templates.toolset import clones


@clones.tool("GET /clone-review", access=AppOwner(), effect="read", taints=True)
async def clones_review(call: Call, app_id: AppId) -> CloneReview:
    """See where an app comes from, what it can do, and what of a clone is still switched off.

    Each of `abilities` says in a sentence what the app does or lets others do, whether it is on, and which tool
    switches it on. `hosts` are those that its code, agents and triggers name.
    """
    query = select(clone_origins).where(clone_origins.c.app_id == app_id)
    origin = (await call.services.database.execute(query)).first()
    columns = [apps.c[name] for name in WITHHELD]
    settings = (await call.services.database.execute(select(*columns).where(apps.c.id == app_id))).mappings().one()
    place = Place(app_id, call.stores, call.services.vault)
    survey = await survey_app(call.services, call.registry.toolsets, place, texts=True)
    unfilled_keys = None if origin is None else await _find_unfilled(call, place, origin)
    own = list_withheld(dict(settings))
    known_names = {(each.kind, each.name) for each in own}
    withheld_abilities = list_withheld({} if origin is None else origin.withheld, dict(settings))
    abilities = [
        *survey.abilities,
        *own,
        *(each for each in withheld_abilities if (each.kind, each.name) not in known_names),
    ]
    return {
        "app_id": app_id,
        "source_app_id": None if origin is None else origin.source_app_id,
        "source_name": None if origin is None else origin.source_name,
        "job_id": None if origin is None else origin.job_id,
        "cloned_at": None if origin is None else origin.created_at,
        "unfilled_env_vars": unfilled_keys,
        "abilities": describe_abilities(abilities),
        "hosts": sorted(survey.hosts)[:200],
        "secrets": list(survey.secrets),
        "complete": not survey.cut,
        "_meta": {"next_actions": _list_next_actions(abilities, unfilled_keys or {})},
    }


async def _find_unfilled(call: Call, place: Place, origin: Any) -> dict[str, list[str]] | None:
    """Returns the variables that the copy began without, and still has not, by function; None if none."""
    present_keys = await list_env(call.registry.toolsets, place)
    unfilled_keys = {
        name: [key for key in keys if key not in present_keys[name]]
        for name, keys in (origin.unfilled_env_vars or {}).items()
        if name in present_keys
    }
    return {name: keys for name, keys in unfilled_keys.items() if keys} or None


def _list_next_actions(abilities: list[Ability], unfilled_keys: dict[str, list[str]]) -> list[NextAction]:
    actions: list[NextAction] = []
    for name, keys in unfilled_keys.items():
        description = f"Set {', '.join(keys)} of the function {name}."
        actions.append({"action": "fill_in", "description": description, "tool": "functions_env_update"})
    for each in abilities:
        if not each.is_on and each.tool is not None and len(actions) < 50:
            description = f"Switch on, if you want it: {each.says}"
            actions.append({"action": f"switch_on_{each.kind}", "description": description, "tool": each.tool})
    return actions
