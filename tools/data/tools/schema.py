"""/v1/{app_id}/schema and /migrations: the tables of an app, and the history of their changes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from baobab.storage.sql.database import StatementTimeout
from baobab.storage.sql.statements import Statements
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, JsonObject, Mcp, Rest, Text, one_of
from baobab.tools.core.binding import Brief
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import PrivilegeMissing
from baobab.tools.core.guard.texts import require_marking
from baobab.tools.core.types import DefaultBy
from baobab.tools.data.actor import SERVICE
from baobab.tools.data.advice.open_tables import find_open_tables
from baobab.tools.data.errors import (
    DestructiveChange,
    InvalidExpression,
    InvalidName,
    InvalidSchema,
    MigrationFailed,
    QueryTimeout,
    ReservedTable,
    TableLimit,
    TableNotFound,
    UnknownTable,
    WrittenByUsers,
)
from baobab.tools.data.expressions.compiler import load_parser
from baobab.tools.data.fields import UNDO, TableName
from baobab.tools.data.history.change_log import ChangeLog, find_author
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.migration.agent_uses import list_broken_agents
from baobab.tools.data.migration.change import describe
from baobab.tools.data.migration.changes import change_catalogue, try_policies, try_views
from baobab.tools.data.migration.losses import suggest_renames
from baobab.tools.data.migration.merging import merge_document
from baobab.tools.data.migration.migration import MigrationPlan
from baobab.tools.data.migration.schema_log import Kept, SchemaLog
from baobab.tools.data.rows.own_text import forget_outside_rows, is_written_by_users
from baobab.tools.data.rows.row_security import lower_guard
from baobab.tools.data.rows.transactions import find_catalogue, format_moment
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schema.document import Wanted, read_document, render_document, render_table
from baobab.tools.data.schemas import Applied, BrokenCheck, Meta, Migrations, OwnText, Schema, TableDescription
from baobab.tools.data.toolset import data

_ADMIN = AppOwner("admin")
_EXAMPLE = {
    "tables": {
        "posts": {
            "columns": {
                "id": {"type": "uuid", "primaryKey": True, "default": "gen_random_uuid()"},
                "user_id": {"type": "uuid", "nullable": False},
                "title": {"type": "text", "nullable": False},
                "created_at": {"type": "timestamptz", "default": "now()"},
            },
            "indexes": {"posts_user_idx": {"columns": ["user_id"]}},
        }
    }
}
_REFUSALS = (
    InvalidSchema,
    InvalidName,
    ReservedTable,
    UnknownTable,
    DestructiveChange,
    MigrationFailed,
    TableLimit,
    InvalidExpression,
    QueryTimeout,
    PrivilegeMissing,
)
_MOST_MIGRATIONS = 200

Mode = Annotated[Literal["exact", "merge"], DefaultBy(mcp="merge", agent="merge", console="merge")]

SchemaDocument = Annotated[
    JsonObject,
    Field(
        alias="schema",
        description="`tables` by name with their `columns`, `indexes` and `checks`, `views` by name, each a SELECT, "
        "and `_drop`: the whole schema, or with `mode: merge` only what changes. "
        'Such as {"tables": {"posts": {"columns": {"id": {"type": "uuid", "primaryKey": true, "default": '
        '"gen_random_uuid()"}, "title": {"type": "text", "nullable": false}, "user_id": "uuid"}}}}.',
    ),
]


@data.tool(
    "GET /schema",
    access=AppOwner(),
    effect="read",
    mcp=Mcp(start=True),
)
async def schema_get(call: Call, app_id: AppId) -> Schema:
    """Show the app's schema: every table with its columns and indexes, as schema_apply takes it."""
    catalogue = await find_catalogue(call)
    return {
        "app_id": app_id,
        "schema": render_document(catalogue),
        "api_base": f"{call.services.options.base_url}/v1/{app_id}",
        "_meta": _describe_tables(catalogue),
    }


@data.tool(
    "GET /schema/{table}",
    access=AppOwner(),
    effect="read",
    raises=(TableNotFound,),
)
async def schema_describe(call: Call, app_id: AppId, table: TableName) -> TableDescription:
    """Describe one table or view: columns, key, which tables refer to it, its policies, and the query of a view."""
    catalogue = await find_catalogue(call)
    view = catalogue.views.get(table)
    readable = catalogue.find_readable(table)
    description: TableDescription = {
        "table": table,
        "columns": render_table(readable)["columns"],
        "checks": {check.name: check.text for check in readable.checks.values()},
        "key": list(readable.key),
        "referred_to_by": sorted(f"{child.name}.{column.name}" for child, column, _ in catalogue.references_to(table)),
        "row_level_security": readable.secured,
        "own_text": readable.own_text,
        "policies": sorted(readable.policies),
    }
    return description if view is None else {**description, "query": view.text}


@data.tool(
    "PUT /schema/{table}/own-text",
    access=AppOwner("admin"),
    effect="write",
    raises=(TableNotFound, WrittenByUsers),
    audit=Audit("schema.own_text", resource="table"),
    rest=Rest(examples={"own": True}),
    guard=Guard(widens={"own": one_of([True])}),
)
async def schema_own_text(call: Call, app_id: AppId, table: TableName, own: bool) -> OwnText:
    """Mark a table as the app's own text, or end that: a run that reads its rows has read no text from outside.

    Mark what only you and your programs write. Rows that a run writes after it has read text from outside still count
    as such. The mark ends when a policy lets users or visitors write rows.

    own: whether its rows are texts of those who run the app.
    """
    if own:
        require_marking(call)
    store = call.stores.data

    def mark(statements: Statements, catalogue: Catalogue) -> Catalogue:
        info = catalogue.table(table)
        if own and is_written_by_users(info):
            raise WrittenByUsers(f"Policies of `{table}` let users or visitors write rows.")
        if own and not info.own_text:
            forget_outside_rows(statements, store, app_id, table)
        return catalogue.with_table(replace(info, own_text=own))

    await change_catalogue(call, mark)
    call.audit.resource_id = table
    call.audit.data |= {"own_text": own}
    return {"table": table, "own_text": own}


async def _digest_schema(call: Call, **_: Any) -> str:
    """Returns the digest of the present schema, so that an approved change is not made on another schema than the one
    that was reviewed.
    """
    return hashlib.sha256((await find_catalogue(call)).encode().encode()).hexdigest()


async def _preview_apply(
    call: Call, app_id: AppId, document: Mapping[str, Any], mode: str, dry_run: bool, name: str | None
) -> str:
    del app_id, name
    plan = await _plan(call, document, mode)
    plan.require_authorised()
    if dry_run or not plan.changes:
        return "It would change nothing."
    text = "It would " + "; ".join(change.description for change in plan.changes)[:4000] + "."
    broken_agents = await list_broken_agents(call, await find_catalogue(call), plan.result)
    return " ".join([text, *await _find_unkept(call, plan), *broken_agents])


@data.tool(
    "POST /schema/apply",
    access=_ADMIN,
    effect="write",
    raises=_REFUSALS,
    audit=Audit("schema.apply", resource="schema"),
    rest=Rest(examples={"schema": _EXAMPLE, "name": "add posts"}),
    mcp=Mcp(
        start=True,
        brief=Brief(
            "statements",
            frozenset({"sql"}),
            "The SQL is left out: schema_migrations has it once it has run, and POST /v1/{app_id}/schema/apply before.",
        ),
    ),
    guard=Guard(
        destructive_when="if it drops a table or a column",
        preview=_preview_apply,
        meaning=_digest_schema,
        undone_by=UNDO,
        consequence="It changes tables. What it drops, data_undo can bring back within the days of undo, unless the "
        "preview says that it cannot.",
    ),
)
async def schema_apply(
    call: Call,
    app_id: AppId,
    document: SchemaDocument,
    mode: Mode = "exact",
    dry_run: bool = False,
    name: Annotated[str, Text(200)] | None = None,
) -> Applied:
    """Make the app's tables match a schema, all or nothing.

    Rows are lost only by name: a table in `_drop`, a column in its table's `_dropColumns`; data_undo brings them back
    within the days of undo. `_renameTables` and a table's `_renameColumns` are objects of new names by present ones,
    and keep the rows. Columns may have `default` and `onUpdate` (such as `now()`) and `enum`. `checks` of a table are
    conditions on its rows, and a column with `generated` is computed from others. New tables are closed to users and
    visitors until a policy opens them (rls_create_policy, rls_isolate).

    document: the schema, such as schema_get answers.
    mode: `merge` changes only what the document names, and everything else stays; null for an index, a check, a view or
        a default removes it. `exact` takes the document for the whole schema: a table that it leaves out is refused
        unless `_drop` names it, and an index, a check or a default that it leaves out is removed.
    dry_run: only tell what would be done, and which checks the rows of today break.
    name: the migration's name.
    """
    plan = await _plan(call, document, mode)
    plan.require_authorised()
    if not plan.changes:
        return {"applied": 0, "statements": [], "message": "The tables are as the schema says already."}
    if dry_run:
        count = len(plan.changes)
        dry: Applied = {
            "dry_run": True,
            "applied": count,
            "statements": describe(plan.changes),
            "message": "Nothing was changed.",
        }
        if broken_checks := await _find_broken_checks(call, plan):
            dry["broken_checks"] = broken_checks
        present_catalogue = await find_catalogue(call)
        if warnings := [
            *await _find_unkept(call, plan),
            *suggest_renames(present_catalogue, plan.result, document),
            *await list_broken_agents(call, present_catalogue, plan.result),
        ]:
            dry["warnings"] = warnings
        return dry
    if any(change.destructive for change in plan.changes):
        call.declare_destructive()
    migration_id = call.services.ids.uuid()
    store, now = call.stores.data, format_moment(call)
    parser, older_catalogue, kept_drops = await load_parser(), await find_catalogue(call), Kept(None)
    options, token = call.services.options, call.services.ids.hex(12)

    def apply(statements: Statements, current: Catalogue) -> Catalogue:
        nonlocal plan, older_catalogue, kept_drops
        older_catalogue = current
        # Another schema may have been applied since this one was read.
        plan = MigrationPlan(store, app_id, current, _read(parser, current, document, mode), now, parser)
        plan.require_authorised()
        is_lowered = any(change.sql and not change.sql.startswith("CREATE") for change in plan.changes)
        if is_lowered:
            lower_guard(statements, store, app_id)
        sequences = Sequences(statements, store, app_id)
        log = ChangeLog(statements, store, app_id, sequences, find_author(call, SERVICE), now, options.undo_bytes)
        kept_drops = SchemaLog(statements, store, app_id, log, token, options.undo_bytes).keep(plan)
        plan.apply(statements)
        sequences.write()
        try_policies(call, statements, plan.result)
        try_views(call, statements, plan.result)
        table = store.name_table(app_id, "_migrations")
        [(position,)] = statements.rows(f"SELECT coalesce(max(position), 0) FROM {table}")
        statements.rows(f"DELETE FROM {table} WHERE position <= ?", position - _MOST_MIGRATIONS)
        statements.rows(
            f"INSERT INTO {table} (id, position, name, statements, applied_at) VALUES (?, ?, ?, ?, ?)",
            migration_id,
            position + 1,
            name or "; ".join(change.description for change in plan.changes)[:200],
            json.dumps([change.sql for change in plan.changes if change.sql]),
            now,
        )
        return replace(plan.result, guard=None if is_lowered else current.guard)

    catalogue = await change_catalogue(call, apply)
    call.audit.resource_id = migration_id
    answer: Applied = {
        "applied": len(plan.changes),
        "statements": describe(plan.changes),
        "migration_id": migration_id,
        "name": name,
        "message": f"Made {len(plan.changes)} {'change' if len(plan.changes) == 1 else 'changes'}.",
        "_meta": _describe_tables(catalogue),
    }
    if kept_drops.action is not None:
        answer["action_id"] = str(kept_drops.action)
        answer["message"] += f" data_undo takes the action {kept_drops.action} back, within {options.undo_days} days."
        call.action_id = str(kept_drops.action)
    warnings = [
        *kept_drops.warnings,
        *_warn(call, plan, catalogue),
        *suggest_renames(older_catalogue, catalogue, document),
        *await list_broken_agents(call, older_catalogue, catalogue),
    ]
    return {**answer, "warnings": warnings} if warnings else answer


@data.tool(
    "GET /migrations",
    access=AppOwner(),
    effect="read",
)
async def schema_migrations(call: Call, app_id: AppId) -> Migrations:
    """List applied schemas, newest first, with the statements that each one ran."""
    store = call.stores.data
    table = store.name_table(app_id, "_migrations")
    text = f"SELECT id, name, statements, applied_at FROM {table} ORDER BY position DESC LIMIT {_MOST_MIGRATIONS}"
    rows = []
    if (await find_catalogue(call)).version:
        rows = await store.read(app_id, lambda statements: statements.rows(text), call.unit)
    return {
        "app_id": app_id,
        "migrations": [
            {
                "id": row[0],
                "description": row[1],
                "applied_sql": json.loads(row[2]),
                "applied_at": datetime.fromisoformat(row[3]),
            }
            for row in rows
        ],
        "template_migrations": [],
    }


async def _plan(call: Call, document: Mapping[str, Any], mode: str) -> MigrationPlan:
    app_id = call.require_app().id
    current, parser = await find_catalogue(call), await load_parser()
    target = _read(parser, current, document, mode)
    return MigrationPlan(call.stores.data, app_id, current, target, format_moment(call), parser)


def _read(parser: Any, current: Catalogue, document: Mapping[str, Any], mode: str) -> Wanted:
    return read_document(document if mode == "exact" else merge_document(parser, current, document))


async def _find_broken_checks(call: Call, plan: MigrationPlan) -> list[BrokenCheck]:
    if not (await find_catalogue(call)).version:
        return []
    try:
        return await call.stores.data.read(call.require_app().id, plan.find_broken_checks, call.unit)
    except StatementTimeout as exc:
        raise QueryTimeout from exc


async def _find_unkept(call: Call, plan: MigrationPlan) -> list[str]:
    """Returns warnings about what a plan would drop and undo could not bring back."""
    app_id, store, options = call.require_app().id, call.stores.data, call.services.options
    if not any(change.destructive for change in plan.changes):
        return []

    def look(statements: Statements) -> list[str]:
        log = ChangeLog(
            statements, store, app_id, Sequences(statements, store, app_id), find_author(call, SERVICE), "", 0
        )
        return SchemaLog(statements, store, app_id, log, "", options.undo_bytes).find_unkept(plan)

    return await store.read(app_id, look, call.unit)


def _describe_tables(catalogue: Catalogue) -> Meta:
    return {"resource_info": {"table_count": len(catalogue.tables), "tables": sorted(catalogue.tables)}}


def _warn(call: Call, plan: MigrationPlan, catalogue: Catalogue) -> list[str]:
    """Returns warnings about mistakes that a developer would otherwise find later."""
    prefix = "create the table "
    tables = [
        change.description.removeprefix(prefix) for change in plan.changes if change.description.startswith(prefix)
    ]
    closed_tables = [name for name in tables if name in catalogue.tables and not catalogue.tables[name].policies]
    warnings: list[str] = []
    if closed_tables:
        names = ", ".join(closed_tables)
        warnings.append(
            f"Users and visitors reach no row of {names} until rls_isolate or rls_create_policy opens them."
        )
    taken_paths = {_segment_beside_tables(tool) for tool in call.registry.tools.values()}
    warnings += [
        f"/v1/{{app_id}}/{name} is the address of something else: this table is at /v1/{{app_id}}/data/{name}."
        for name in tables
        if name in taken_paths
    ]
    views = {change.description.rpartition(" the view ")[2] for change in plan.changes}
    warnings += [finding["message"] for finding in find_open_tables(catalogue) if finding["table"] in views]
    return warnings


def _segment_beside_tables(tool: Tool) -> str:
    """Returns the segment of a tool's path where the table's name stands in paths of rows; empty if the path begins
    otherwise.
    """
    prefix = "/v1/{app_id}/"
    path = tool.rest.path if tool.rest is not None else ""
    return path.removeprefix(prefix).partition("/")[0] if path.startswith(prefix) else ""
