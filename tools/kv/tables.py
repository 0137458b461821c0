"""The table of expose rules; entries are kept by `storage/kv/`."""

from sqlalchemy import Column, ForeignKey, Integer, String, Table

from baobab.storage.tables import metadata

rules_table = Table(
    "kv_rules",
    metadata,
    Column("app_id", String(36), ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True),
    Column("pattern", String(512), primary_key=True),
    Column("read", String(10), nullable=False),
    Column("write", String(10), nullable=False),
    Column("position", Integer, nullable=False),
)
