"""The functions of Postgres that look up the caller's own rows of a table, which its row-level security would hide.

A policy that asked its own table would lead Postgres in a circle. Each function belongs to the database's user, to whom
no policy applies, and answers only the rows in which one column is the caller of the transaction.
"""

import hashlib

from baobab.storage.data.row_security import JOBS, RowSecurity
from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.expressions.subqueries import list_own_rows
from baobab.tools.data.schema.catalogue import Catalogue

_PREFIX = "_own_"
_FIND = (
    "SELECT proname FROM pg_proc JOIN pg_namespace AS place ON place.oid = pronamespace "
    "WHERE nspname = ? AND left(proname, 5) = ?"
)


def name_own_rows(table: str, column: str) -> str:
    """Returns the name of the function for a table and the column of its owner. Both names may be too long for one."""
    return f"{_PREFIX}{hashlib.sha256(f'{table}.{column}'.encode()).hexdigest()[:32]}"


def find_own_rows(catalogue: Catalogue) -> set[tuple[str, str]]:
    """Returns the tables whose own rows policies look up, each with the column of the caller's id."""
    return {
        pair
        for table in catalogue.tables.values()
        for policy in table.policies.values()
        for tree in (policy.using_tree, policy.check_tree)
        for pair in list_own_rows(tree)
    }


def create_own_rows(
    statements: Statements, store: DataStore, app_id: str, catalogue: Catalogue, roles: RowSecurity
) -> None:
    """Creates the functions that the policies of a catalogue need."""
    names = ", ".join('"' + roles.names[job].replace('"', '""') + '"' for job in JOBS)
    for table, column in sorted(find_own_rows(catalogue)):
        source = store.name_table(app_id, table)
        function = f"{store.name_table(app_id, name_own_rows(table, column))}()"
        cast = "::uuid" if catalogue.tables[table].columns[column].type.name == "uuid" else ""
        body = f"SELECT * FROM {source} WHERE \"{column}\" = nullif(current_setting('baobab.user_id', true), ''){cast}"
        for text in (
            f"CREATE OR REPLACE FUNCTION {function} RETURNS SETOF {source} LANGUAGE sql STABLE SECURITY DEFINER "
            f"SET search_path = pg_catalog AS $body$ {body} $body$",
            f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION {function} TO {names}",
        ):
            statements.rows(text)


def drop_own_rows(statements: Statements, store: DataStore, app_id: str, catalogue: Catalogue) -> None:
    """Drops the functions that no policy of a catalogue needs. The policies that needed them are gone by then."""
    needed_names = {name_own_rows(*pair) for pair in find_own_rows(catalogue)}
    for (name,) in statements.rows(_FIND, app_id, _PREFIX):
        if name not in needed_names:
            statements.rows(f"DROP FUNCTION {store.name_table(app_id, name)}()")
