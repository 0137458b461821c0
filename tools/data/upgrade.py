"""Adds to the databases of apps what an earlier version did not create."""

from functools import partial

from baobab.storage.data.store import DataStore
from baobab.storage.statements import Statements
from baobab.tools.data.catalogue import read_catalogue
from baobab.tools.data.own_tables import create_own_tables
from baobab.tools.data.usage import Counter

_NEWEST = ("_catalogue", "guard")
"""The newest table and column of Baobab's own. A database that has it has all of them."""


async def upgrade_databases(store: DataStore) -> None:
    """Upgrades the databases of all apps of a store. Two servers may do so at once. A killed upgrade leaves each app
    either as it was or upgraded.
    """
    for app_id in await store.list_apps(without=_NEWEST):
        await store.alter(app_id, partial(_upgrade_database, store=store, app_id=app_id))


def _upgrade_database(statements: Statements, store: DataStore, app_id: str) -> None:
    create_own_tables(statements, store, app_id)
    counter = Counter(statements, store, app_id)
    for table in read_catalogue(statements, store, app_id).tables.values():
        if not counter.is_counting(table):
            counter.stop(table)
            counter.start(table)
