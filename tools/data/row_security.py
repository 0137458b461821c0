"""Postgres's own row-level security, from the same trees as the conditions in each statement.

A mistake in the code that writes statements then does not show a stranger's row. It never refuses what the
policies allow.

There is a role for reading and one for writing, of users and of visitors each. A role that writes sees all rows of the
tables in its statement: what it may change, insert and delete is narrowed by the policies for those commands, and that
a caller reads what they change is a part of them. So a caller can be answered the row that they have written and may
not read afterwards, and no policy of a table leads back to itself.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from baobab.storage.data.row_security import JOBS, Job, RowSecurity
from baobab.storage.data.store import DataStore
from baobab.storage.statements import Statements
from baobab.tools.data.actor import SERVICE, VISITOR, Actor
from baobab.tools.data.catalogue import Catalogue, Command, Expression, TableInfo
from baobab.tools.data.constraints import LiteralWriter
from baobab.tools.data.expressions import Scope, SqlWriter, allowed_after, allowed_rows, both, quote

_USER = Actor("user")
_COMMANDS: tuple[Command, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")
_UPSERTS = "current_setting('baobab.upserts', true) = 'yes'"


class _PolicyWriter(LiteralWriter):
    """Writes conditions for policies of Postgres. Settings of the transaction say who asks."""

    def _write_caller(self, tree: Expression, scope: Scope) -> str:
        del scope
        setting = f"nullif(current_setting('baobab.user_{'role' if tree[0] == 'role' else 'id'}', true), '')"
        return f"{setting}::uuid" if tree[0] == "user_uuid" else setting

    def _write_moment(self, tree: Expression, scope: Scope) -> str:
        del tree, scope
        return "current_setting('baobab.now', true)::timestamptz"

    writers: Mapping[str, Any] = {
        **LiteralWriter.writers,
        "user": _write_caller,
        "user_uuid": _write_caller,
        "role": _write_caller,
        "now": _write_moment,
    }


def lower_guard(statements: Statements, store: DataStore, app_id: str) -> None:
    """Drops the policies of all tables, so that tables can change: Postgres refuses what a policy depends on."""
    if store.dialect == "postgresql":
        for name, policies in _list_policies(statements, app_id).items():
            _run(statements, [*_drop_policies(store.name_table(app_id, name), policies)])


def raise_guard(
    statements: Statements, store: DataStore, app_id: str, current: Catalogue, wanted: Catalogue
) -> Catalogue:
    """Gives the tables of a catalogue their policies. current: what the database has policies of."""
    roles = store.row_security
    if roles is None:
        return replace(wanted, guard=None)
    is_guarded = current.guard == roles.mark
    if not is_guarded:
        current = Catalogue()
        _run(statements, [f"GRANT USAGE ON SCHEMA {quote(app_id)} TO {_list_roles(roles, JOBS)}"])
    there: dict[str, list[str]] | None = None
    for table in wanted.tables.values():
        older = current.tables.get(table.name)
        policies = _write_policies(store, app_id, wanted, table, roles)
        if older is None or _write_policies(store, app_id, current, older, roles) != policies:
            if there is None:
                there = _list_policies(statements, app_id)
            dropped = _drop_policies(store.name_table(app_id, table.name), there.get(table.name, ()))
            _run(statements, [*dropped, *policies])
    return replace(wanted, guard=roles.mark)


def _run(statements: Statements, texts: list[str]) -> None:
    # In one round trip. The last one is always there, since libpq takes what has no semicolon another way.
    statements.rows("; ".join([*texts, "SELECT 1"]))


def _list_policies(statements: Statements, app_id: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table, policy in statements.rows(
        "SELECT tablename, policyname FROM pg_policies WHERE schemaname = ? ORDER BY tablename", app_id
    ):
        found.setdefault(table, []).append(policy)
    return found


def _drop_policies(name: str, policies: Any) -> Iterator[str]:
    for policy in policies:
        yield f"DROP POLICY {quote(policy)} ON {name}"


def _list_roles(roles: RowSecurity, jobs: tuple[Job, ...]) -> str:
    return ", ".join(quote(roles.names[job].replace('"', '""')) for job in jobs)


def _write_policies(
    store: DataStore, app_id: str, catalogue: Catalogue, table: TableInfo, roles: RowSecurity
) -> list[str]:
    name = store.name_table(app_id, table.name)
    texts = [
        f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY",
        f"GRANT SELECT ON {name} TO {_list_roles(roles, JOBS)}",
        f"GRANT INSERT, UPDATE, DELETE ON {name} TO {_list_roles(roles, ('user_writes', 'visitor_writes'))}",
    ]
    jobs: tuple[tuple[Actor, Job, Job], ...] = (
        (_USER, "user_reads", "user_writes"),
        (VISITOR, "visitor_reads", "visitor_writes"),
    )
    for actor, reads, writes in jobs:
        parts: list[tuple[Job, Command, str]] = []
        # A table that a policy asks has policies of its own for whoever reads, and Postgres adds them.
        readable = allowed_rows(table, "SELECT", actor)
        shown = _write(_PolicyWriter(store, app_id, catalogue, SERVICE, ""), table, readable)
        if shown != "FALSE":
            parts.append((reads, "SELECT", f"USING ({shown})"))

        def write(tree: Expression, actor: Actor = actor) -> str:
            return _write(_PolicyWriter(store, app_id, catalogue, actor, ""), table, tree)

        parts.append((writes, "SELECT", "USING (true)"))
        after = {command: write(allowed_after(table, command, actor)) for command in ("INSERT", "UPDATE")}
        # The row that an upsert proposes need not fulfil the check where it changes another.
        parts.append((writes, "INSERT", f"WITH CHECK ({after['INSERT']} OR {_UPSERTS})"))
        reached = write(both(allowed_rows(table, "UPDATE", actor), readable))
        parts.append((writes, "UPDATE", f"USING ({reached}) WITH CHECK ({after['UPDATE']})"))
        deleted = write(both(allowed_rows(table, "DELETE", actor), readable))
        parts.append((writes, "DELETE", f"USING ({deleted})"))
        texts += [
            f'CREATE POLICY "_{job}_{command.lower()}" ON {name} FOR {command} TO {_list_roles(roles, (job,))} {part}'
            for job, command, part in parts
        ]
    return texts


def _write(writer: SqlWriter, table: TableInfo, tree: Expression) -> str:
    return writer.write(tree, {"": quote(table.name)})


@contextmanager
def run_as(
    statements: Statements,
    store: DataStore,
    catalogue: Catalogue,
    actor: Actor,
    now: str,
    *,
    writes: bool = False,
    upserts: bool = False,
) -> Iterator[None]:
    """Runs statements for somebody under a role for which row-level security holds."""
    roles = store.row_security
    if roles is None or actor.role == "service" or catalogue.guard != roles.mark:
        yield
        return
    job: Job = (
        ("visitor_writes" if writes else "visitor_reads")
        if actor.role == "anon"
        else ("user_writes" if writes else "user_reads")
    )
    statements.become(roles.become(job, actor.user_id, actor.user_role, now, upserts=upserts))
    try:
        yield
    finally:
        statements.become(None)
