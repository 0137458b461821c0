"""What a clone of an app has of its functions: the code that is live, which nobody but those who run the app can call.

A function of a copy is a stranger's program: whatever would start it by itself, or for somebody who is no key or person
of the app, is switched off until the owner says otherwise. Its environment is what came with the request.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, select

from baobab.storage.sql.tables import build_upsert
from baobab.tools.core.app_clones import Ability, ClonedStore, CloneRule, Cloning, Place, never_clone
from baobab.tools.functions.env import open_env, seal_env
from baobab.tools.functions.tables import functions_table, versions

_columns, _versions = functions_table.c, versions.c
_LIVE = and_(
    _versions.app_id == _columns.app_id, _versions.function_id == _columns.id, _versions.number == _columns.version
)
_SWITCH = "functions_settings_update"
_STARTS = {
    "cron": "At the hours `{schedule}` ({timezone}) the function {name} runs by itself, with the app's own right.",
    "storage_upload": "The function {name} runs after each upload, with the app's own right.",
    "webhook": "Webhooks from outside start the function {name}, with the app's own right.",
    "websocket": "What clients of the realtime channel send starts the function {name}.",
}


async def _copy(cloning: Cloning) -> None:
    source, dest = cloning.source, cloning.dest
    async with source.stores.database.reading() as connection:
        is_there = (_columns.app_id == source.app_id, _columns.deleted_at.is_(None))
        function_rows = (await connection.execute(select(functions_table).where(*is_there))).mappings().all()
        live = select(versions).join(functions_table, _LIVE).where(*is_there)
        version_rows = (await connection.execute(live)).mappings().all()
    dialect = dest.stores.database.dialect
    async with dest.stores.database.writing(lock=dest.app_id, bulk=True) as connection:
        for row in function_rows:
            copy = _copy_function(cloning, dict(row))
            await connection.execute(build_upsert(dialect, functions_table).on_conflict_do_nothing(), copy)
        for row in version_rows:
            copy = {
                **row,
                "app_id": dest.app_id,
                "function_id": cloning.derive_id(functions_table.name, row["function_id"]),
                "number": 1,
                "message": "Copied from a template.",
                "author": {"kind": "account", "id": cloning.account_id},
                "created_at": cloning.started_at,
            }
            await connection.execute(build_upsert(dialect, versions).on_conflict_do_nothing(), copy)


def _copy_function(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    function_id = cloning.derive_id(functions_table.name, row["id"])
    triggers = [{**each, "enabled": each["enabled"] and not _acts_for_strangers(each)} for each in row["triggers"]]
    return {
        **row,
        "app_id": cloning.dest.app_id,
        "id": function_id,
        "version": 1,
        "last_version": 1,
        "triggers": triggers,
        "webhook_secret": None,
        "env": seal_env(cloning.services.vault, function_id, cloning.env_values.get(row["name"], {})),
        "agent_tool_exposed_to": "developer_only",
        "created_at": cloning.started_at,
        "deployed_at": cloning.started_at,
        "updated_at": cloning.started_at,
    }


def _acts_for_strangers(trigger: Mapping[str, Any]) -> bool:
    """Returns whether a trigger lets a function run by itself, or for whoever comes."""
    return bool(trigger["type"] != "http" or trigger["config"].get("auth", "required") != "required")


async def _read_rows(place: Place) -> Sequence[Any]:
    is_there = (_columns.app_id == place.app_id, _columns.deleted_at.is_(None))
    async with place.stores.database.reading() as connection:
        return (await connection.execute(select(functions_table).where(*is_there).order_by(_columns.name))).all()


async def _outline(place: Place) -> Mapping[str, list[Any]]:
    rows = await _read_rows(place)
    return {
        "functions": [
            {"name": row.name, "trigger_type": ", ".join(each["type"] for each in row.triggers) or "none"}
            for row in rows
        ]
    }


async def _list_env(place: Place) -> Mapping[str, Sequence[str]]:
    return {row.name: sorted(open_env(place.vault, row.id, row.env)) for row in await _read_rows(place)}


async def _list_abilities(place: Place) -> Iterable[Ability]:
    abilities = []
    for row in await _read_rows(place):
        hosts = "every public host" if row.allowed_hosts is None else ", ".join(row.allowed_hosts) or "no other host"
        says = f"Where the function {row.name} runs, it may send what it reads to {hosts}."
        abilities.append(Ability("function_fetch", row.name, says))
        for each in row.triggers:
            if not _acts_for_strangers(each):
                continue
            if each["type"] == "http":
                says = f"Anyone may call the function {row.name}, which runs with the app's own right."
            else:
                says = _STARTS[each["type"]].format(name=row.name, **_only_texts(each["config"]))
            abilities.append(Ability(f"function_{each['type']}", row.name, says, each["enabled"], _SWITCH))
    return abilities


def _only_texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in config.items() if isinstance(value, str) and name != "name"}


async def _read_texts(place: Place) -> AsyncIterator[tuple[str, str]]:
    is_there = (_columns.app_id == place.app_id, _columns.deleted_at.is_(None))
    query = select(_columns.name, _versions.source).join(versions, _LIVE).where(*is_there).order_by(_columns.name)
    async with place.stores.database.reading() as connection:
        rows = (await connection.execute(query)).all()
    for row in rows:
        yield f"the function {row.name}", row.source


CLONES: tuple[CloneRule, ...] = (
    ClonedStore(
        "functions",
        "functions with the code that is live, as version 1; what starts one by itself or for anybody is switched off",
        {"replaying_functions": _copy},
        tables=(functions_table.name, versions.name),
        outline=_outline,
        list_abilities=_list_abilities,
        read_texts=_read_texts,
        list_env=_list_env,
        is_code=True,
    ),
    *never_clone("credentials", "function_app_env"),
    *never_clone("history", "function_invocations", "function_usage", "function_webhooks"),
    *never_clone("what calls remember", "function_steps", "function_claims"),
)
