"""Postgres's own row-level security, built from the same trees as the conditions in each statement.

It is a second safeguard: a mistake in the code that writes statements then cannot show a row of a stranger. It never
refuses what the policies allow.

There is one role for reading and one for writing, for users and for visitors each. A role that writes sees all rows of
the tables in its statement; what it may change, insert and delete is narrowed by the policies for those commands, which
include that the caller may read what it changes. So a caller gets back the row that it has written even if it may not
read it later, and no policy leads back to its own table.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from baobab.storage.data.row_security import JOBS, SQL_ROLES, Job, RowSecurity, SqlRole
from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.actor import SERVICE, VISITOR, Actor
from baobab.tools.data.expressions.constraints import LiteralWriter
from baobab.tools.data.expressions.expressions import Scope, SqlWriter, allowed_after, allowed_rows, both, quote
from baobab.tools.data.expressions.own_rows import create_own_rows, drop_own_rows, find_own_rows, name_own_rows
from baobab.tools.data.schema.catalogue import Catalogue, Command, Expression, TableInfo

_USER = Actor("user")
_COMMANDS: tuple[Command, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SQL = "_sql_"
"""The prefix of the policies for the SQL of an app's own code."""
_SQL_ACTORS: Mapping[SqlRole, Actor] = {"sql": SERVICE, "sql_user": _USER, "sql_anon": VISITOR}
_UPSERTS = "current_setting('baobab.upserts', true) = 'yes'"


class _PolicyWriter(LiteralWriter):
    """Writes conditions for policies of Postgres, which read the caller from settings of the transaction."""

    def _write_caller(self, tree: Expression, scope: Scope) -> str:
        del scope
        setting = f"nullif(current_setting('baobab.user_{'role' if tree[0] == 'role' else 'id'}', true), '')"
        return f"{setting}::uuid" if tree[0] == "user_uuid" else setting

    def _write_claim(self, tree: Expression, scope: Scope) -> str:
        del scope
        return f"(nullif(current_setting('baobab.user_claims', true), '')::jsonb ->> '{tree[1]}')"

    def _write_moment(self, tree: Expression, scope: Scope) -> str:
        del scope
        moment = "current_setting('baobab.now', true)::timestamptz"
        return f"({moment} + interval '{tree[1]} seconds')" if len(tree) > 1 else moment

    writers: Mapping[str, Any] = {
        **LiteralWriter.writers,
        "user": _write_caller,
        "user_uuid": _write_caller,
        "role": _write_caller,
        "claim": _write_claim,
        "now": _write_moment,
    }


def lower_guard(statements: Statements, store: DataStore, app_id: str) -> None:
    """Drops the policies of all tables before the tables change, because Postgres refuses to change what a policy
    uses.
    """
    if store.dialect == "postgresql":
        for name, policies in _list_policies(statements, app_id).items():
            _run(statements, [*_drop_policies(store.name_table(app_id, name), policies)])
        drop_own_rows(statements, store, app_id, Catalogue())


def raise_guard(
    statements: Statements, store: DataStore, app_id: str, current: Catalogue, target: Catalogue
) -> Catalogue:
    """Creates the policies of the tables of a catalogue.

    current: the catalogue whose policies the database has now.
    """
    roles = store.row_security
    if roles is None:
        return replace(target, guard=None)
    is_guarded = current.guard == roles.mark
    if not is_guarded:
        current = Catalogue()
        _run(statements, [f"GRANT USAGE ON SCHEMA {quote(app_id)} TO {_list_roles(roles, JOBS)}"])
    has_own_rows = bool(find_own_rows(current) | find_own_rows(target))
    if has_own_rows:
        create_own_rows(statements, store, app_id, target, roles)
    policies_of_tables: dict[str, list[str]] | None = None
    for table in target.tables.values():
        older = current.tables.get(table.name)
        policies = _write_policies(store, app_id, target, table, roles)
        if older is None or _write_policies(store, app_id, current, older, roles) != policies:
            if policies_of_tables is None:
                policies_of_tables = _list_policies(statements, app_id)
            drop_statements = _drop_policies(
                store.name_table(app_id, table.name), policies_of_tables.get(table.name, ())
            )
            _run(statements, [*drop_statements, *policies])
    if has_own_rows:
        drop_own_rows(statements, store, app_id, target)
    if has_sql_roles(statements, roles, app_id):
        raise_sql_guard(statements, store, app_id, target, roles)
    return replace(target, guard=roles.mark)


def has_sql_roles(statements: Statements, roles: RowSecurity, app_id: str) -> bool:
    """Returns whether the app has the roles under which the SQL of its own code runs."""
    names = [roles.name_sql_role(app_id, role) for role in SQL_ROLES]
    return len(statements.rows("SELECT 1 FROM pg_roles WHERE rolname IN ?", names)) == len(SQL_ROLES)


def is_sql_guarded(statements: Statements, roles: RowSecurity, app_id: str, catalogue: Catalogue) -> bool:
    """Returns whether these roles and their policies are there, for every table of a catalogue."""
    query = "SELECT count(*) FROM pg_policies WHERE schemaname = ? AND left(policyname, 5) = ?"
    [(count,)] = statements.rows(query, app_id, _SQL)
    return count == len(catalogue.tables) * len(SQL_ROLES) and has_sql_roles(statements, roles, app_id)


def raise_sql_guard(
    statements: Statements, store: DataStore, app_id: str, catalogue: Catalogue, roles: RowSecurity
) -> None:
    """Creates the roles of one app under which the SQL of its own code runs, and their policies. They reach the app's
    tables and nothing else, and only read: what a statement writes is written as any write is.
    """
    names = {role: quote(roles.name_sql_role(app_id, role)) for role in SQL_ROLES}
    everyone = ", ".join(names.values())
    for name in names.values():
        # Another database of the server may have a copy of the app.
        create = f"CREATE ROLE {name} NOLOGIN NOINHERIT"
        handle = "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL"
        statements.rows(f"DO $$ BEGIN {create}; {handle}; END $$")
    texts = [f"GRANT {everyone} TO CURRENT_USER", f"GRANT USAGE ON SCHEMA {quote(app_id)} TO {everyone}"]
    present_policies = _list_policies(statements, app_id)
    for table in catalogue.tables.values():
        place = store.name_table(app_id, table.name)
        texts += _drop_policies(place, [each for each in present_policies.get(table.name, ()) if each.startswith(_SQL)])
        texts += [f"ALTER TABLE {place} ENABLE ROW LEVEL SECURITY", f"GRANT SELECT ON {place} TO {everyone}"]
        for role, actor in _SQL_ACTORS.items():
            writer = _open_writer(store, app_id, catalogue, SERVICE)
            visible = _write(writer, table, allowed_rows(table, "SELECT", actor))
            texts.append(f'CREATE POLICY "{_SQL}{role}" ON {place} FOR SELECT TO {names[role]} USING ({visible})')
    own_rows = find_own_rows(catalogue)
    if own_rows:
        create_own_rows(statements, store, app_id, catalogue, roles)
        functions = [f"{store.name_table(app_id, name_own_rows(*pair))}()" for pair in sorted(own_rows)]
        texts += [f"GRANT EXECUTE ON FUNCTION {function} TO {everyone}" for function in functions]
    _run(statements, texts)


def _run(statements: Statements, texts: list[str]) -> None:
    # All in one round trip. The last statement is always present, because libpq treats a text without a semicolon
    # differently.
    statements.rows("; ".join([*texts, "SELECT 1"]))


def _list_policies(statements: Statements, app_id: str) -> dict[str, list[str]]:
    policies_of_tables: dict[str, list[str]] = {}
    for table, policy in statements.rows(
        "SELECT tablename, policyname FROM pg_policies WHERE schemaname = ? ORDER BY tablename", app_id
    ):
        policies_of_tables.setdefault(table, []).append(policy)
    return policies_of_tables


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
        # Postgres itself adds the policies of the tables that a policy reads.
        readable = allowed_rows(table, "SELECT", actor)
        visible = _write(_open_writer(store, app_id, catalogue, SERVICE), table, readable)
        if visible != "FALSE":
            parts.append((reads, "SELECT", f"USING ({visible})"))

        def write(tree: Expression, actor: Actor = actor) -> str:
            return _write(_open_writer(store, app_id, catalogue, actor), table, tree)

        parts.append((writes, "SELECT", "USING (true)"))
        allowed_values = {command: write(allowed_after(table, command, actor)) for command in ("INSERT", "UPDATE")}
        # If an upsert updates a present row, the row that it proposed need not meet the check.
        parts.append((writes, "INSERT", f"WITH CHECK ({allowed_values['INSERT']} OR {_UPSERTS})"))
        updatable = write(both(allowed_rows(table, "UPDATE", actor), readable))
        parts.append((writes, "UPDATE", f"USING ({updatable}) WITH CHECK ({allowed_values['UPDATE']})"))
        deletable = write(both(allowed_rows(table, "DELETE", actor), readable))
        parts.append((writes, "DELETE", f"USING ({deletable})"))
        texts += [
            f'CREATE POLICY "_{job}_{command.lower()}" ON {name} FOR {command} TO {_list_roles(roles, (job,))} {part}'
            for job, command, part in parts
        ]
    return texts


def _open_writer(store: DataStore, app_id: str, catalogue: Catalogue, actor: Actor) -> SqlWriter:
    writer = _PolicyWriter(store, app_id, catalogue, actor, "")
    writer.has_own_rows_by_function = True
    return writer


def _write(writer: SqlWriter, table: TableInfo, tree: Expression) -> str:
    return writer.write(tree, {"": quote(table.name)})


def is_guarded(store: DataStore, catalogue: Catalogue, actor: Actor) -> bool:
    """Returns whether `run_as` runs statements under a role for which row-level security holds."""
    roles = store.row_security
    return roles is not None and actor.role != "service" and catalogue.guard == roles.mark


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
    """Runs statements for an actor under a role for which row-level security holds."""
    roles = store.row_security
    if roles is None or not is_guarded(store, catalogue, actor):
        yield
        return
    job: Job = (
        ("visitor_writes" if writes else "visitor_reads")
        if actor.role == "anon"
        else ("user_writes" if writes else "user_reads")
    )
    claims = json.dumps(dict(actor.claims)) if actor.claims else ""
    statements.become(roles.become(job, actor.user_id, actor.user_role, now, upserts=upserts, claims=claims))
    try:
        yield
    finally:
        statements.become(None)
