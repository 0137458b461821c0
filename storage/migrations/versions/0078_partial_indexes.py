"""Indexes of memories, their actions and the audit log have only the rows that somebody looks for.

Each index of a row takes a page of its own in every commit.
"""

import sqlalchemy as sa
from alembic import op

revision = "0078"
down_revision = "0077"

_COMES_FROM_ONE = "source_artifact_id IS NOT NULL"


def upgrade() -> None:
    op.drop_index("ix_substrate_decisions_kind", "substrate_decisions")
    _create("ix_substrate_decisions_principles", "substrate_decisions", "status", "id", where="kind = 'principle'")
    _replace("substrate_action_ledger", "status", "proposed_at", name="status", where="status != 'executed'")
    for column in ("action_id", "row_id"):
        _replace("substrate_changes", column, where="coalesce(action_id, '') != ''")
    for table in ("substrate_decisions", "substrate_commitments", "substrate_learnings"):
        _replace(table, "source_artifact_id", where=_COMES_FROM_ONE)
    _replace("substrate_memory", "source_artifact_id", "updated_at", where=_COMES_FROM_ONE)
    index = "ix_audit_logs_app_id_created_at"
    op.drop_index(index, "audit_logs")
    where = sa.text("app_id IS NOT NULL")
    op.create_index(index, "audit_logs", ["app_id", "created_at"], sqlite_where=where, postgresql_where=where)


def _replace(table: str, *columns: str, where: str, name: str | None = None) -> None:
    index = f"ix_{table}_{name or columns[0]}"
    op.drop_index(index, table)
    _create(index, table, *columns, where=where)


def _create(index: str, table: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    keys = ["organisation_id", *columns]
    op.create_index(index, table, keys, sqlite_where=condition, postgresql_where=condition)
