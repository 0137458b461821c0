"""The tables of expose rules and of the app's own texts; entries are kept by `storage/kv/`."""

from sqlalchemy import Column, ForeignKey, Integer, String, Table

from baobab.storage.sql.tables import metadata
from baobab.tools.core import AppTable, Freezes
from baobab.tools.core.guard.own_prefixes import define_prefixes

FREEZES = Freezes("kv")

rules_table = Table(
    "kv_rules",
    metadata,
    Column("app_id", String(36), ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True),
    Column("pattern", String(512), primary_key=True),
    Column("read", String(10), nullable=False),
    Column("write", String(10), nullable=False),
    Column("position", Integer, nullable=False),
)

own_prefixes = define_prefixes("kv_own_prefixes")
"""In the database of the app's region, as the next one is."""

outside_keys = Table(
    "kv_outside_keys",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("key", String(512), primary_key=True),
)
"""Keys below a marked beginning whose values come from outside (own_keys.py)."""

APP_TABLES = (AppTable(own_prefixes), AppTable(outside_keys))
