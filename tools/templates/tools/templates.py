"""/v1/templates: the apps that others may clone."""

from typing import Annotated, Any, Literal

from pydantic import Field

from baobab.tools.core import EVERYBODY, AnyAccount, Call, Text
from baobab.tools.core.app_clones import APP_VARIABLE, Ability, Place
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.cells import Cells
from baobab.tools.templates.access import ANYBODY
from baobab.tools.templates.errors import TemplateNotFound
from baobab.tools.templates.new_copy import WITHHELD
from baobab.tools.templates.schemas import (
    AbilityRow,
    FunctionEnv,
    KeyMeta,
    Meta,
    NextAction,
    Preflight,
    SchemaSummary,
    TemplateDetail,
    TemplateId,
    TemplateList,
    TemplateRow,
)
from baobab.tools.templates.sources import count_rows, list_forks, select_listed, select_source
from baobab.tools.templates.survey import Outlines, list_env, survey_app
from baobab.tools.templates.toolset import templates

_FORKS = 5
_OWN = "PLATFORM_"
"""How the names of variables begin that the platform sets itself."""
_LOOK = "Look at one before you clone it: what it needs from you, and what it can do."
_NOTE = "Environment variables of an app are never copied."


@templates.tool("GET /templates", access=EVERYBODY, effect="read", taints=True)
async def templates_list(
    call: Call,
    q: Annotated[str, Text(63)] | None = None,
    region: Annotated[str, Text(40)] | None = None,
    sort: Literal["recent", "popular"] = "recent",
    limit: Annotated[int, Field(ge=1, le=50)] = 20,
    offset: Annotated[int, Field(ge=0, le=100_000)] = 0,
) -> TemplateList:
    """List the apps that everybody may clone, in all regions.

    q: how the name begins.
    region: only those of one region, or of all regions of a geography.
    sort: the newest first, or those that were cloned most often.
    limit: how many at most.
    offset: how many to skip, for the next page.
    """
    names = None if region is None else [cell.name for cell in call.services.of(Cells).find(region)]
    query = select_listed(q, names)
    orders: dict[str, tuple[Any, ...]] = {
        "recent": (apps.c.created_at.desc(), apps.c.id),
        "popular": (apps.c.fork_count.desc(), apps.c.created_at.desc(), apps.c.id),
    }
    async with call.reading() as execute:
        total = await count_rows(execute, query)
        rows = (await execute(query.order_by(*orders[sort]).limit(limit).offset(offset))).all()
    outlines = await call.services.of(Outlines).get_all(call.registry.toolsets, [row.id for row in rows])
    call.count_list(total)
    items = [_describe(row, outline) for row, outline in zip(rows, outlines, strict=True)]
    actions: list[NextAction] = [{"action": "preflight", "description": _LOOK, "tool": "templates_preflight"}]
    meta: Meta = {"next_actions": actions if items else []}
    return {"items": items, "total": total, "limit": limit, "offset": offset, "_meta": meta}


@templates.tool("GET /templates/{template_id}", access=ANYBODY, effect="read", raises=(TemplateNotFound,), taints=True)
async def templates_get(call: Call, template_id: TemplateId) -> TemplateDetail:
    """Read what a template has: its tables, its functions, and its newest clones."""
    async with call.reading() as execute:
        row = (await execute(select_source(template_id, call.caller, only_listed=True))).first()
        if row is None:
            raise TemplateNotFound
        forks = await list_forks(execute, template_id, _FORKS)
    outline = await call.services.of(Outlines).get(call.registry.toolsets, template_id)
    fields = outline or {}
    return {
        **_describe(row, outline),
        "display_name": row.display_name,
        "tables": fields.get("tables", []),
        "functions": fields.get("functions", []),
        "forks_sample": [
            {
                "app_id": fork.id,
                "name": fork.name,
                "owner_display_name": fork.owner_display_name,
                "created_at": fork.created_at,
            }
            for fork in forks
        ],
        "repo_latest_snapshot": row.repo_latest_snapshot,
    }


@templates.tool(
    "GET /templates/{template_id}/clone-preflight",
    access=AnyAccount(),
    effect="read",
    raises=(TemplateNotFound,),
    taints=True,
)
async def templates_preflight(call: Call, template_id: TemplateId) -> Preflight:
    """Look at a template before you clone it: what it needs from you, what it can do, and what looks secret in it.

    A clone is a stranger's program: its triggers, public agents, origins and sign-in providers stay off in the copy
    until you switch each on. Of what looks secret, only the place is answered.
    """
    source = (await call.read(select_source(template_id, call.caller, only_listed=False))).first()
    if source is None:
        raise TemplateNotFound
    place = Place(template_id, call.services.stores_of(source.region), call.services.vault)
    survey = await survey_app(call.services, call.registry.toolsets, place, texts=True)
    keys = await list_env(call.registry.toolsets, place)
    app_keys = sorted(each.name for each in survey.abilities if each.kind == APP_VARIABLE)
    return {
        "functions": [_describe_env(name, names) for name, names in sorted(keys.items())],
        "durable_objects": {"env_keys": []},
        "app_env": {"keys": app_keys, "note": _NOTE},
        "has_repo": source.repo_latest_snapshot is not None,
        "abilities": describe_abilities([*survey.abilities, *list_withheld({c: getattr(source, c) for c in WITHHELD})]),
        "hosts": sorted(survey.hosts)[:200],
        "secrets": list(survey.secrets),
        "complete": not survey.cut,
        "_meta": {
            "next_actions": [
                {
                    "action": "clone",
                    "description": "Clone it, with values for the variables that it needs.",
                    "tool": "templates_clone",
                }
            ]
        },
    }


def list_withheld(settings: dict[str, Any], present: dict[str, Any] | None = None) -> list[Ability]:
    """Lists what the settings of a template let others do. present: those of the copy; None for the template's own."""
    now = settings if present is None else present
    abilities = [
        Ability(
            "origin", origin, f"Pages of {origin} may call the app.", origin in now["allowed_origins"], "config_cors"
        )
        for origin in settings.get("allowed_origins") or ()
    ]
    hook = settings.get("auth_hook_function")
    if hook:
        says = f"The function {hook} runs after each sign-in."
        abilities.append(Ability("hook", hook, says, now["auth_hook_function"] == hook, "config_auth_hooks"))
    for tool in settings.get("user_tools") or ():
        says = f"Users of the app may call {tool} over MCP."
        abilities.append(Ability("user_tool", tool, says, tool in now["user_tools"], "config_user_tools"))
    return abilities


def describe_abilities(abilities: list[Ability]) -> list[AbilityRow]:
    sorted_abilities = sorted(abilities, key=lambda each: (each.kind, each.name))
    return [
        {"kind": each.kind, "name": each.name, "says": each.says, "is_on": each.is_on, "tool": each.tool}
        for each in sorted_abilities
    ]


def _describe_env(name: str, keys: list[str]) -> FunctionEnv:
    meta: list[KeyMeta] = [
        {"key": key, "status": "auto_filled", "reason": "The platform sets it."}
        if key.startswith(_OWN)
        else {"key": key, "status": "user_required"}
        for key in keys
    ]
    return {"fn_name": name, "keys": keys, "key_meta": meta}


def _describe(row: Any, outline: Any) -> TemplateRow:
    summary: SchemaSummary = {"table_count": None, "function_count": None}
    if outline is not None:
        summary = {"table_count": len(outline["tables"]), "function_count": len(outline["functions"])}
    return {
        "app_id": row.id,
        "name": row.name,
        "owner_display_name": row.owner_display_name,
        "region": row.region,
        "created_at": row.created_at,
        "fork_count": row.fork_count,
        "has_repo": row.repo_latest_snapshot is not None,
        "schema_summary": summary,
    }
