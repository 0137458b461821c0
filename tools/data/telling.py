"""Tells the triggers of an app which rows have changed, by the log of changes, which holds each change once."""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import AppNotFound, Services
from baobab.tools.core.app_events import Occurrence
from baobab.tools.data.history.change_log import SCHEMA, Change, LogReader
from baobab.tools.data.schema.catalogue import Catalogue, Catalogues

TELLING = "triggers"
"""For whom the log is read."""
_PAGE = 200
_WORDS: Mapping[str, str] = {"INSERT": "row.inserted", "UPDATE": "row.updated", "DELETE": "row.deleted"}


async def tell_changes(services: Services, app_id: str) -> None:
    """Tells all changes that were not told yet. Raises RetryLater while too much waits."""
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    store = services.stores_of(app.region).data
    while True:
        position = await services.subscriptions.find_position(app)
        if position is None or not await store.exists(app_id):
            return
        changes = await store.read(app_id, partial(_read, store=store, app_id=app_id, after=position), caller=TELLING)
        if not changes:
            return
        catalogue = await services.of(Catalogues).get(app_id)
        occurrences = [_build(catalogue, change) for change in changes if change.table != SCHEMA]
        lost_count = changes[0].id - position - 1
        await services.subscriptions.take(app, occurrences, position=(position, changes[-1].id), lost=lost_count)


async def pass_over(services: Services, app_id: str, until: datetime) -> None:
    """Passes over the changes that were not told and are not later than a moment: no trigger is told of them."""
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    store = services.stores_of(app.region).data
    while True:
        position = await services.subscriptions.find_position(app)
        if position is None or not await store.exists(app_id):
            return
        changes = await store.read(app_id, partial(_read, store=store, app_id=app_id, after=position), caller=TELLING)
        old_changes = [change for change in changes if datetime.fromisoformat(change.at) <= until]
        if not old_changes:
            return
        await services.subscriptions.take(app, [], position=(position, old_changes[-1].id))


async def list_behind(services: Services) -> list[str]:
    """Returns the apps that have changes which were not told."""
    behind: list[str] = []
    for app_id, position in (await services.subscriptions.list_positions()).items():
        try:
            store = services.stores_of((await services.directory.app(app_id)).region).data
        except AppNotFound:
            continue
        if not await store.exists(app_id):
            continue
        last = await store.read(app_id, partial(_find_last, store=store, app_id=app_id), quick=True, caller=TELLING)
        if last > position:
            behind.append(app_id)
    return behind


def _read(statements: Statements, store: DataStore, app_id: str, after: int) -> list[Change]:
    return LogReader(statements, store, app_id).read_after(after, _PAGE)


def _find_last(statements: Statements, store: DataStore, app_id: str) -> int:
    return LogReader(statements, store, app_id).find_last()


def _build(catalogue: Catalogue, change: Change) -> Occurrence:
    key = _name_key(catalogue, change.table, change.new_key or change.old_key)
    data: dict[str, Any] = {"table": change.table, "key": key, "row": change.new_row, "old": change.old_row}
    data |= {"changed_by": change.role, "user_id": change.user_id}
    return Occurrence(
        f"row:{change.id}",
        _WORDS[change.op],
        datetime.fromisoformat(change.at),
        f"{change.table}:{change.new_key or change.old_key}",
        data,
        change.id,
        change.run_id,
        change.role != "service",
    )


def _name_key(catalogue: Catalogue, table: str, key: str | None) -> Any:
    """Returns a key as an object; as a list if the table is gone, None if it has no key."""
    if key is None:
        return None
    values = json.loads(key)
    info = catalogue.tables.get(table)
    return values if info is None or len(info.key) != len(values) else dict(zip(info.key, values, strict=True))
