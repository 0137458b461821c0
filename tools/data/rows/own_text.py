"""Tables whose rows an admin has marked as the app's own texts, and the rows of these that are not.

What a run stores after it had read text from outside comes from outside. Such rows of marked tables are kept by their
keys, in the transaction that writes them; the key is empty in a table without one.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Call
from baobab.tools.core.guard.read_text import ReadText
from baobab.tools.data.actor import VISITOR, Actor
from baobab.tools.data.expressions.expressions import FALSE, opened_rows
from baobab.tools.data.history.change_log import encode_key
from baobab.tools.data.queries.selection import Selection
from baobab.tools.data.schema.catalogue import Catalogue, Command, TableInfo
from baobab.tools.data.schemas import Row

_SOMEBODY = Actor("user", "00000000-0000-4000-8000-000000000000", "user")
_MOST_NAMED = 200
_LONGEST_LABEL = 80
_LABELS = ("text", "varchar")


def is_written_by_users(table: TableInfo) -> bool:
    """Returns whether policies let users or visitors write any row of a table."""
    commands: tuple[Command, ...] = ("INSERT", "UPDATE")
    actors = (VISITOR, _SOMEBODY)
    return any(opened_rows(table, command, actor) != FALSE for command in commands for actor in actors)


def end_own_text(catalogue: Catalogue) -> tuple[Catalogue, list[str]]:
    """Returns the catalogue without the marks of tables that users or visitors may write, and the names of these."""
    names = [table.name for table in catalogue.tables.values() if table.own_text and is_written_by_users(table)]
    for name in names:
        catalogue = catalogue.with_table(replace(catalogue.tables[name], own_text=False))
    return catalogue, names


def forget_outside_rows(statements: Statements, store: DataStore, app_id: str, table: str) -> None:
    """Forgets which rows of a table come from outside, because an admin says anew that it holds the app's own texts."""
    statements.rows(f"DELETE FROM {store.name_table(app_id, '_outside_rows')} WHERE name = ?", table)


async def describe_rows(call: Call, catalogue: Catalogue, selection: Selection, found: Sequence[Row]) -> None:
    """Notes whose texts the rows of an answer are, for the run that has read them."""
    if call.context.step is None:
        return
    table = selection.table
    tables = [catalogue.tables[name] for name in set(_list_tables(catalogue, selection))]
    is_marked = all(each.own_text for each in tables)
    # After the rows were read: whoever has stored one of them has stored its key with it.
    outside_rows = await _read_outside_rows(call, [each.name for each in tables]) if is_marked else set()
    is_plain = table.view is None and selection.groups is None and not selection.embeds and bool(table.key)
    texts: list[ReadText] = []
    for row in found[:_MOST_NAMED]:
        key = encode_key(table, row) if is_plain and all(name in row for name in table.key) else None
        is_outside = bool(outside_rows) if key is None else bool(outside_rows & {(table.name, key), (table.name, "")})
        author = row.get(table.fill_user) if table.fill_user else None
        key_text = None if key is None else ",".join(map(str, json.loads(key)))
        label = _label_row(table, row) or key_text or ""
        is_own = is_marked and not is_outside
        texts.append(ReadText("row", label, is_own, table.name, key_text, None if author is None else str(author)))
    if len(found) > _MOST_NAMED:
        texts.append(ReadText("row", "", is_marked and not outside_rows, table.name))
    call.note_texts(*texts)


async def _read_outside_rows(call: Call, names: Sequence[str]) -> set[tuple[str, str]]:
    """Reads the tables and keys of rows from outside, as the server itself: users have no right to this table."""
    app_id, store = call.require_app().id, call.stores.data
    places = ", ".join("?" * len(names))
    text = f"SELECT name, key FROM {store.name_table(app_id, '_outside_rows')} WHERE name IN ({places})"
    rows = await store.read(app_id, lambda statements: statements.rows(text, *names), call.unit)
    return {(name, key) for name, key in rows}


def _list_tables(catalogue: Catalogue, selection: Selection) -> Iterator[str]:
    view = catalogue.views.get(selection.table.name)
    yield from [selection.table.name] if view is None else view.tables
    for embed in selection.embeds:
        yield from _list_tables(catalogue, embed.selection)


def _label_row(table: TableInfo, row: Row) -> str | None:
    """Returns the first short text of a row, by which people know it."""
    for column in table.columns.values():
        value = row.get(column.name)
        if column.type.name in _LABELS and not column.primary_key and column.references is None and value:
            text = str(value)
            if column.name != table.fill_user:
                return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return None


def warn_of_ended_marks(call: Call, names: Iterable[str]) -> None:
    for name in names:
        call.warn(f"`{name}` no longer counts as the app's own text, because users or visitors may write its rows now.")
