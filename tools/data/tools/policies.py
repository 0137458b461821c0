"""/v1/{app_id}/rls: row-level security, which defines who may reach which rows of a table."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from baobab.storage.sql.database import LockTimeout, StatementOutdated, StatementTimeout
from baobab.storage.sql.statements import Statements
from baobab.tools.core import OMITTED, AppId, AppOwner, Audit, BadRequest, Call, Guard, Mcp, Rest, Text
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.data.actor import VISITOR, Actor
from baobab.tools.data.advice.missing_indexes import find_missing_indexes
from baobab.tools.data.advice.open_tables import (
    MOST_COUNTED,
    SOMEBODY,
    describe_full_view,
    find_full_views,
    find_open_tables,
)
from baobab.tools.data.advice.slow_statements import SlowNotes, SlowStatements
from baobab.tools.data.errors import (
    ColumnNotFound,
    InvalidExpression,
    InvalidSchema,
    MismatchedTypes,
    PolicyNotFound,
    TableNotFound,
    UnsafeExpression,
)
from baobab.tools.data.expressions.compiler import compile_condition, load_parser
from baobab.tools.data.expressions.expressions import FALSE, TRUE, allowed_rows, opened_rows
from baobab.tools.data.fields import TableName
from baobab.tools.data.migration.changes import change_catalogue, count_rows, try_policies
from baobab.tools.data.rows.transactions import find_catalogue
from baobab.tools.data.schema.catalogue import Catalogue, Expression, Policy, TableInfo
from baobab.tools.data.schemas import (
    Dropped,
    Enabled,
    Finding,
    Isolated,
    Policies,
    PolicyRow,
    PolicySet,
    SlowStatement,
    Visible,
)
from baobab.tools.data.toolset import data

_ADMIN = AppOwner("admin")
_WRONG = (TableNotFound, ColumnNotFound, InvalidSchema, UnsafeExpression, MismatchedTypes, InvalidExpression)
_MOST_POLICIES = 50

PolicyName = Annotated[
    str,
    Text(63, pattern=r"^[a-z_][a-z0-9_]*$"),
    Field(description="The policy's name, one for each in its table.", examples=["read_own"]),
]
CommandName = Literal["SELECT", "INSERT", "UPDATE", "DELETE", "ALL"]
PolicyRole = Literal["anon", "user"]
ExpressionText = Annotated[str, Text(4000, min_length=1), Field(examples=["user_id = current_user_id()"])]
ColumnName = Annotated[str, Text(63, min_length=1)]


@data.tool(
    "POST /rls/enable",
    access=_ADMIN,
    effect="write",
    raises=(TableNotFound,),
    audit=Audit("rls.enable", resource="table"),
    rest=Rest(examples={"table_name": "posts"}),
)
async def rls_enable(call: Call, app_id: AppId, table_name: TableName) -> Enabled:
    """Close a table to users and visitors, except for what its policies open. New tables are closed already."""

    def enable(statements: Statements, catalogue: Catalogue) -> Catalogue:
        del statements
        return catalogue.with_table(replace(catalogue.table(table_name), secured=True))

    await change_catalogue(call, enable)
    call.audit.resource_id = table_name
    return {"success": True, "table": table_name, "message": "Only what policies open can be reached."}


@data.tool(
    "POST /rls/policies",
    access=_ADMIN,
    effect="write",
    raises=_WRONG,
    audit=Audit("rls.policy.create", action="create", resource="policy"),
    rest=Rest(
        examples={
            "table_name": "posts",
            "policy_name": "read_own",
            "command": "SELECT",
            "role": "user",
            "using_expression": "user_id = current_user_id()",
        }
    ),
    mcp=Mcp(start=True),
    guard=Guard(
        overwrites=True, widens=dict.fromkeys(("using_expression", "with_check_expression", "role"), whatever_is_given)
    ),
)
async def rls_create_policy(
    call: Call,
    app_id: AppId,
    table_name: TableName,
    policy_name: PolicyName,
    command: CommandName = "ALL",
    role: PolicyRole | None = None,
    using_expression: ExpressionText | None = None,
    with_check_expression: ExpressionText | None = None,
    restrictive: bool = False,
    user_column: ColumnName | None = None,
) -> PolicySet:
    """Create a policy, or replace the one with this name. The answer says how many existing rows it opens.

    command: the command that it allows; ALL for every command.
    role: whom it applies to: `anon` or `user`; if left out, both.
    using_expression: which rows may be reached: a condition on columns and current_user_id().
    with_check_expression: a condition that inserted and changed rows must meet; if left out, `using_expression`.
    restrictive: it narrows what other policies open, instead of opening more.
    user_column: the column that an insert of a user fills with the user's id.
    """
    if using_expression is None and with_check_expression is None:
        raise BadRequest(
            "A policy has a `using_expression`, a `with_check_expression`, or both.",
            remediation="Give at least one of them.",
        )
    policy = Policy(policy_name, command, role, using_expression, with_check_expression, restrictive)
    return await _set_policy(call, table_name, policy, user_column)


@data.tool(
    "PATCH /rls/policies/{policy_name}",
    access=_ADMIN,
    effect="write",
    raises=(*_WRONG, PolicyNotFound),
    audit=Audit("rls.policy.update", resource="policy"),
    rest=Rest(examples={"table_name": "posts", "using_expression": "true"}),
    guard=Guard(
        widens=dict.fromkeys(
            ("using_expression", "with_check_expression", "command", "role", "restrictive"), whatever_is_given
        )
    ),
)
async def rls_update_policy(
    call: Call,
    app_id: AppId,
    policy_name: PolicyName,
    table_name: TableName,
    command: CommandName | None = None,
    role: PolicyRole | None = OMITTED,
    using_expression: ExpressionText | None = OMITTED,
    with_check_expression: ExpressionText | None = OMITTED,
    restrictive: bool | None = None,
) -> PolicySet:
    """Change fields of a policy. Fields that you leave out stay; null removes a role or an expression.

    command: the command that it allows; ALL for every command.
    role: whom it applies to: `anon` or `user`; null for both.
    using_expression: which rows may be reached; null removes the condition.
    with_check_expression: a condition that inserted and changed rows must meet; null removes it.
    restrictive: it narrows what other policies open, instead of opening more.
    """
    table = (await find_catalogue(call)).table(table_name)
    policy = table.policies.get(policy_name)
    if policy is None:
        raise PolicyNotFound(f"`{table_name}` has no policy `{policy_name}`.")
    fields = {"role": role, "using": using_expression, "check": with_check_expression}
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not OMITTED}
    changes |= {} if command is None else {"command": command}
    changes |= {} if restrictive is None else {"restrictive": restrictive}
    new_policy = replace(policy, **changes)
    if new_policy.using is None and new_policy.check is None:
        raise BadRequest(
            "A policy keeps at least one of its expressions.",
            remediation="Give at least one of them, or leave the policy as it is.",
        )
    return await _set_policy(call, table_name, new_policy, None)


@data.tool(
    "POST /rls",
    access=_ADMIN,
    effect="write",
    raises=_WRONG,
    audit=Audit("rls.policy.create", action="create", resource="policy"),
    rest=Rest(examples={"table_name": "posts", "user_column": "user_id"}),
    guard=Guard(widens={"public_read_column": whatever_is_given}),
)
async def rls_isolate(
    call: Call,
    app_id: AppId,
    table_name: TableName,
    user_column: ColumnName,
    public_read_column: ColumnName | None = None,
) -> Isolated:
    """Let each user reach only their own rows.

    user_column: the column that holds the user's id, a uuid or a text. A user's insert fills it.
    public_read_column: a boolean column; rows where it is true can be read by everybody.
    """
    policy_name = f"{table_name}_user_isolation"[:63]
    public = [f"{table_name}_public_read_{role}"[:63] for role in ("user", "anon")] if public_read_column else []

    def isolate(statements: Statements, catalogue: Catalogue) -> Catalogue:
        table = catalogue.table(table_name)
        kind = table.column(user_column).type
        if kind.name not in ("uuid", "text", "varchar") or kind.array:
            raise MismatchedTypes(f"`{user_column}` is {kind}; a user's id is kept in a uuid or a text.")
        user = ["user_uuid"] if kind.name == "uuid" else ["user"]
        tree = ["=", ["column", "", user_column], user]
        text = f"{user_column} = current_user_id()"
        policies = {policy_name: Policy(policy_name, "ALL", "user", text, text, using_tree=tree, check_tree=tree)}
        if public_read_column is not None:
            if table.column(public_read_column).type.name != "boolean":
                raise MismatchedTypes(f"`{public_read_column}` is not a boolean.")
            is_public = ["is", ["column", "", public_read_column], "true"]
            roles: tuple[PolicyRole, ...] = ("user", "anon")
            for name, role in zip(public, roles, strict=True):
                policies[name] = Policy(name, "SELECT", role, f"{public_read_column} is true", using_tree=is_public)
        isolated_table = _with_policies(table, policies, user_column)
        try_policies(call, statements, catalogue.with_table(isolated_table))
        return catalogue.with_table(isolated_table)

    await change_catalogue(call, isolate)
    call.audit.resource_id = policy_name
    answer: Isolated = {
        "success": True,
        "table": table_name,
        "user_column": user_column,
        "policy_name": policy_name,
    }
    return {**answer, "public_read_policies": public} if public else answer


@data.tool(
    "GET /rls",
    access=AppOwner(),
    effect="read",
)
async def rls_list(call: Call, app_id: AppId, with_slow_statements: bool = True) -> Policies:
    """List all policies, tables and views that visitors or any user can read or write as a whole, columns that need an
    index for policies or references, and slow statements.

    with_slow_statements: false answers none, and reads nothing from the app's database; tables that are open today only
        because of the rows that they have are then not named.
    """
    catalogue, store = await find_catalogue(call), call.stores.data
    open_tables = find_open_tables(catalogue)
    slow: list[SlowStatement] = []
    if catalogue.version and with_slow_statements:
        if call.unit.is_untouched:
            # A caller that holds a transaction of this app would wait for itself.
            await call.services.of(SlowNotes).flush_app(app_id)
        open_tables += await _find_full_views(call, catalogue, open_tables)
        slow = await store.read(
            app_id, lambda statements: SlowStatements(statements, store, app_id).list(catalogue), call.unit, quick=True
        )
    return {
        "policies": [
            _render_policy(app_id, table, policy)
            for table in catalogue.tables.values()
            for policy in table.policies.values()
        ],
        "tables_with_rls": sorted(name for name, table in catalogue.tables.items() if table.secured),
        "open_tables": open_tables,
        "missing_indexes": find_missing_indexes(catalogue),
        "slow_statements": slow,
    }


async def _find_full_views(call: Call, catalogue: Catalogue, findings: list[Finding]) -> list[Finding]:
    def look(statements: Statements) -> list[Finding]:
        def count(table: TableInfo, condition: Expression, actor: Actor) -> int:
            return count_rows(call, statements, catalogue, table, condition, actor, limit=MOST_COUNTED)

        return find_full_views(catalogue, findings, count)

    try:
        return await call.stores.data.read(call.require_app().id, look, call.unit)
    except (StatementTimeout, StatementOutdated, LockTimeout):
        # What cannot be counted in time is not called open; what is provably open has been found.
        return []


async def _preview_disable(call: Call, app_id: AppId, table_name: str) -> str:
    del app_id
    table = (await find_catalogue(call)).table(table_name)
    names = ", ".join(sorted(table.policies)) or "none"
    return f"It would drop the policies of `{table_name}` ({names}) and let every user read and write every row of it."


async def _preview_drop(call: Call, app_id: AppId, table_name: str, policy_name: str) -> str:
    del app_id
    table = (await find_catalogue(call)).table(table_name)
    if policy_name not in table.policies:
        raise PolicyNotFound(f"`{table_name}` has no policy `{policy_name}`.")
    return f"It would drop the policy `{policy_name}` of `{table_name}`."


@data.tool(
    "DELETE /rls/{table_name}",
    access=_ADMIN,
    effect="destructive",
    guard=Guard(preview=_preview_disable),
    raises=(TableNotFound,),
    audit=Audit("rls.disable", action="disable", resource="table"),
)
async def rls_disable(call: Call, app_id: AppId, table_name: TableName) -> Dropped:
    """Drop all policies of a table and its row-level security. Every user can then read and write every row, and every
    visitor too where the app is public.
    """
    dropped_policies: list[str] = []

    def disable(statements: Statements, catalogue: Catalogue) -> Catalogue:
        del statements
        table = catalogue.table(table_name)
        dropped_policies[:] = table.policies
        return catalogue.with_table(replace(table, secured=False, policies={}, fill_user=None))

    await change_catalogue(call, disable)
    call.audit.resource_id = table_name
    message = f"Every user can now read and write every row of {table_name}."
    return {"success": True, "table": table_name, "dropped": dropped_policies, "message": message}


@data.tool(
    "DELETE /rls/{table_name}/{policy_name}",
    access=_ADMIN,
    effect="destructive",
    guard=Guard(preview=_preview_drop),
    raises=(TableNotFound, PolicyNotFound),
    audit=Audit("rls.policy.delete", action="delete", resource="policy"),
)
async def rls_drop_policy(call: Call, app_id: AppId, table_name: TableName, policy_name: PolicyName) -> Dropped:
    """Drop one policy of a table."""

    def drop(statements: Statements, catalogue: Catalogue) -> Catalogue:
        del statements
        table = catalogue.table(table_name)
        if policy_name not in table.policies:
            raise PolicyNotFound(f"`{table_name}` has no policy `{policy_name}`.")
        remaining = {name: policy for name, policy in table.policies.items() if name != policy_name}
        return catalogue.with_table(replace(table, policies=remaining))

    await change_catalogue(call, drop)
    call.audit.resource_id = policy_name
    return {"success": True, "table": table_name, "dropped": [policy_name], "message": "The policy was dropped."}


async def _set_policy(call: Call, table_name: str, policy: Policy, user_column: str | None) -> PolicySet:
    parser = await load_parser()
    visible: Visible = {"anonymous": 0, "any_user": 0, "total": 0}

    def set_policy(statements: Statements, catalogue: Catalogue) -> Catalogue:
        table = catalogue.table(table_name)
        using = None if policy.using is None else compile_condition(parser, policy.using, catalogue, table)
        check = None if policy.check is None else compile_condition(parser, policy.check, catalogue, table)
        if user_column is not None:
            table.column(user_column)
        compiled_policy = replace(policy, using_tree=using, check_tree=check)
        changed_table = _with_policies(table, {policy.name: compiled_policy}, user_column or table.fill_user)
        result = catalogue.with_table(changed_table)
        try_policies(call, statements, result)
        for name, actor in (("anonymous", VISITOR), ("any_user", SOMEBODY)):
            condition = allowed_rows(changed_table, "SELECT", actor)
            visible[name] = count_rows(call, statements, result, changed_table, condition, actor)  # type: ignore[literal-required]  # two of its fields
        visible["total"] = count_rows(call, statements, result, changed_table, TRUE, actor)
        return result

    changed_catalogue = await change_catalogue(call, set_policy)
    call.audit.resource_id = policy.name
    answer: PolicySet = {"success": True, "policy_name": policy.name, "table": table_name, "visible_rows": visible}
    findings = find_open_tables(changed_catalogue, [table_name])
    known_callers = {finding["caller"] for finding in findings if "SELECT" in finding["may"]}
    for caller, actor, seen_count in (
        ("anyone without signing in", VISITOR, visible["anonymous"]),
        ("any signed-in user", SOMEBODY, visible["any_user"]),
    ):
        if actor.role not in known_callers and 0 < visible["total"] < MOST_COUNTED and seen_count == visible["total"]:
            findings.append(describe_full_view(table_name, caller, actor, seen_count))
    warnings = [finding["message"] for finding in findings]
    is_found = any(finding["caller"] == VISITOR.role and "INSERT" in finding["may"] for finding in findings)
    if not is_found and _lets_visitors_insert(changed_catalogue.table(table_name), policy):
        warnings.append(
            f"`{table_name}`: anyone without signing in may INSERT rows that `{policy.name}` lets pass, any number of "
            "them. Give it `role: user` if only signed-in users should."
        )
    return {**answer, "warnings": warnings} if warnings else answer


def _lets_visitors_insert(table: TableInfo, policy: Policy) -> bool:
    is_meant = policy.command in ("INSERT", "ALL") and policy.role != "user" and not policy.restrictive
    return is_meant and opened_rows(table, "INSERT", VISITOR) != FALSE


def _with_policies(table: TableInfo, policies: dict[str, Policy], fill_user: str | None) -> TableInfo:
    all_policies = {**table.policies, **policies}
    if len(all_policies) > _MOST_POLICIES:
        raise BadRequest(f"A table has at most {_MOST_POLICIES} policies.")
    return replace(table, secured=True, policies=all_policies, fill_user=fill_user)


def _render_policy(app_id: str, table: TableInfo, policy: Policy) -> PolicyRow:
    return {
        "schemaname": app_id,
        "tablename": table.name,
        "policyname": policy.name,
        "permissive": "RESTRICTIVE" if policy.restrictive else "PERMISSIVE",
        "roles": ["anon", "user"] if policy.role is None else [policy.role],
        "cmd": policy.command,
        "qual": policy.using,
        "with_check": policy.check,
    }
