"""Memories are found by meaning, say when they are true, and which action wrote them."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant

revision = "0061"
down_revision = "0060"

_KINDS = ("decisions", "commitments", "learnings", "source_artifacts")


def upgrade() -> None:
    for table in ("decisions", "commitments", "learnings", "memory"):
        for name in ("valid_from", "valid_to", "ended_at"):
            op.add_column(f"substrate_{table}", sa.Column(name, Instant))
    op.add_column("substrate_learnings", sa.Column("replaces", sa.String(64)))
    op.add_column(
        "substrate_memory", sa.Column("action_id", sa.String(64), nullable=False, server_default=sa.text("''"))
    )
    # The first moment is only for the moment: those that are there get their own.
    first = sa.text("'1970-01-01 00:00:00+00'") if _is_postgres() else sa.text("'1970-01-01 00:00:00.000000'")
    op.add_column("substrate_memory", sa.Column("created_at", Instant, nullable=False, server_default=first))
    memory = _table("substrate_memory", "kind")
    for kind in _KINDS:
        rows = _table(f"substrate_{kind}")
        is_same_row = sa.and_(rows.c.organisation_id == memory.c.organisation_id, rows.c.id == memory.c.id)
        values = {
            name: sa.select(rows.c[name]).where(is_same_row).scalar_subquery() for name in ("action_id", "created_at")
        }
        op.execute(memory.update().where(memory.c.kind == kind.removesuffix("s")).values(values))
    if _is_postgres():
        for name in ("action_id", "created_at"):
            op.alter_column("substrate_memory", name, server_default=None)
    table = "substrate_embeddings"
    op.create_table(
        table,
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("memory_at", Instant, nullable=False),
        sa.Column("parts", sa.LargeBinary(), nullable=False),
        sa.Column("bits", sa.LargeBinary(), nullable=False),
        _belongs_to_organisation(table),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f(f"pk_{table}")),
    )
    op.create_index(f"ix_{table}_memory_at", table, ["organisation_id", "memory_at"])
    op.create_index(f"ix_{table}_number", table, ["organisation_id", "number"])
    table = "substrate_embedding_states"
    op.create_table(
        table,
        sa.Column("organisation_id", sa.String(36), nullable=False),
        sa.Column("embedder", sa.String(100), nullable=False),
        sa.Column("embedded_until", Instant, nullable=False),
        _belongs_to_organisation(table),
        sa.PrimaryKeyConstraint("organisation_id", name=op.f(f"pk_{table}")),
    )


def _table(name: str, *further: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, ("organisation_id", "id", "action_id", "created_at", *further)))


def _is_postgres() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _belongs_to_organisation(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["organisation_id"],
        ["organisations.id"],
        name=op.f(f"fk_{table}_organisation_id_organisations"),
        ondelete="CASCADE",
    )
