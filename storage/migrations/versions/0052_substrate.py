"""Organisations have a substrate: a memory and an action ledger."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json

revision = "0052"
down_revision = "0051"


def upgrade() -> None:
    op.create_table(
        "substrate_action_ledger",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("capability", sa.String(length=60), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("result", Json, nullable=True),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("verdict", sa.String(length=40), nullable=False),
        sa.Column("verdict_reason", sa.String(length=500), nullable=False),
        sa.Column("reversible", sa.Boolean(), nullable=False),
        sa.Column("reverted_by_action_id", sa.String(length=64), nullable=True),
        sa.Column("proposed_by_kind", sa.String(length=10), nullable=False),
        sa.Column("proposed_by", sa.String(length=100), nullable=True),
        sa.Column("proposed_by_entity_id", sa.String(length=64), nullable=True),
        sa.Column("source_app_id", sa.String(length=36), nullable=True),
        sa.Column("source_rule_id", sa.String(length=64), nullable=True),
        sa.Column("trigger_context", Json, nullable=True),
        sa.Column("from_strangers", sa.Boolean(), nullable=False),
        sa.Column("approved_by_kind", sa.String(length=10), nullable=True),
        sa.Column("decided_by", sa.String(length=100), nullable=True),
        sa.Column("reject_reason", sa.Text(), nullable=True),
        sa.Column("links", Json, nullable=True),
        sa.Column("proposed_at", Instant, nullable=False),
        sa.Column("decided_at", Instant, nullable=True),
        sa.Column("executed_at", Instant, nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_action_ledger_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_substrate_action_ledger")),
    )
    op.create_index(
        "ix_substrate_action_ledger_capability",
        "substrate_action_ledger",
        ["organisation_id", "capability", "executed_at"],
        unique=False,
    )
    op.create_index(
        "ix_substrate_action_ledger_proposed_at",
        "substrate_action_ledger",
        ["organisation_id", "proposed_at"],
        unique=False,
    )
    op.create_index(
        "ix_substrate_action_ledger_status",
        "substrate_action_ledger",
        ["organisation_id", "status", "proposed_at"],
        unique=False,
    )
    op.create_index(
        "uq_substrate_action_ledger_idempotency_key",
        "substrate_action_ledger",
        ["organisation_id", "idempotency_key"],
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "substrate_changes",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tbl", sa.String(length=40), nullable=False),
        sa.Column("op", sa.String(length=10), nullable=False),
        sa.Column("row_id", sa.String(length=64), nullable=False),
        sa.Column("action_id", sa.String(length=64), nullable=True),
        sa.Column("before", Json, nullable=True),
        sa.Column("created_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_changes_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "seq", name=op.f("pk_substrate_changes")),
    )
    op.create_index(
        "ix_substrate_changes_action_id", "substrate_changes", ["organisation_id", "action_id"], unique=False
    )
    op.create_index("ix_substrate_changes_row_id", "substrate_changes", ["organisation_id", "row_id"], unique=False)
    op.create_table(
        "substrate_commitments",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("from_entity", sa.String(length=500), nullable=True),
        sa.Column("to_entity", sa.String(length=500), nullable=True),
        sa.Column("amount", sa.Float(), nullable=True),
        sa.Column("unit", sa.String(length=50), nullable=True),
        sa.Column("due_at", Instant, nullable=True),
        sa.Column("source_artifact_id", sa.String(length=64), nullable=True),
        sa.Column("attrs", Json, nullable=False),
        sa.Column("action_id", sa.String(length=64), nullable=False),
        sa.Column("from_strangers", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_commitments_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_substrate_commitments")),
    )
    op.create_index(
        "ix_substrate_commitments_source_artifact_id",
        "substrate_commitments",
        ["organisation_id", "source_artifact_id"],
        unique=False,
    )
    op.create_index(
        "ix_substrate_commitments_status",
        "substrate_commitments",
        ["organisation_id", "status", "due_at"],
        unique=False,
    )
    op.create_table(
        "substrate_decisions",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("title", sa.String(length=500), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("rationale", sa.Text(), nullable=True),
        sa.Column("salience", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("supersedes", sa.String(length=64), nullable=True),
        sa.Column("source_artifact_id", sa.String(length=64), nullable=True),
        sa.Column("applies_to", Json, nullable=True),
        sa.Column("constraint_spec", Json, nullable=True),
        sa.Column("retire_reason", sa.Text(), nullable=True),
        sa.Column("action_id", sa.String(length=64), nullable=False),
        sa.Column("from_strangers", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_decisions_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_substrate_decisions")),
    )
    op.create_index(
        "ix_substrate_decisions_kind", "substrate_decisions", ["organisation_id", "kind", "status"], unique=False
    )
    op.create_index(
        "ix_substrate_decisions_source_artifact_id",
        "substrate_decisions",
        ["organisation_id", "source_artifact_id"],
        unique=False,
    )
    op.create_table(
        "substrate_entities",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("type", sa.String(length=20), nullable=False),
        sa.Column("display_name", sa.String(length=500), nullable=True),
        sa.Column("search_name", sa.String(length=500), nullable=False),
        sa.Column("primary_email", sa.String(length=250), nullable=True),
        sa.Column("canonical_keys", Json, nullable=True),
        sa.Column("linked_app_user_id", sa.String(length=36), nullable=True),
        sa.Column("linked_app_id", sa.String(length=36), nullable=True),
        sa.Column("attrs", Json, nullable=False),
        sa.Column("created_by_entity_id", sa.String(length=64), nullable=True),
        sa.Column("created_by_kind", sa.String(length=10), nullable=True),
        sa.Column("merged_into", sa.String(length=64), nullable=True),
        sa.Column("action_id", sa.String(length=64), nullable=False),
        sa.Column("from_strangers", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_entities_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_substrate_entities")),
    )
    op.create_index(
        "ix_substrate_entities_merged_into", "substrate_entities", ["organisation_id", "merged_into"], unique=False
    )
    op.create_index(
        "ix_substrate_entities_updated_at", "substrate_entities", ["organisation_id", "updated_at"], unique=False
    )
    op.create_index(
        "uq_substrate_entities_primary_email",
        "substrate_entities",
        ["organisation_id", "primary_email"],
        unique=True,
        sqlite_where=sa.text("primary_email IS NOT NULL AND merged_into IS NULL"),
        postgresql_where=sa.text("primary_email IS NOT NULL AND merged_into IS NULL"),
    )
    op.create_table(
        "substrate_entity_keys",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("entity_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("type", sa.String(length=20), nullable=False),
        sa.Column("value", sa.String(length=300), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_entity_keys_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "entity_id", "name", name=op.f("pk_substrate_entity_keys")),
    )
    op.create_index(
        "ix_substrate_entity_keys_value", "substrate_entity_keys", ["organisation_id", "name", "value"], unique=False
    )
    op.create_table(
        "substrate_learnings",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("title", sa.String(length=500), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("resolution_taken", sa.Text(), nullable=True),
        sa.Column("related_decision_id", sa.String(length=64), nullable=True),
        sa.Column("source_artifact_id", sa.String(length=64), nullable=True),
        sa.Column("action_id", sa.String(length=64), nullable=False),
        sa.Column("from_strangers", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_learnings_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_substrate_learnings")),
    )
    op.create_index(
        "ix_substrate_learnings_source_artifact_id",
        "substrate_learnings",
        ["organisation_id", "source_artifact_id"],
        unique=False,
    )
    op.create_table(
        "substrate_memory",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("title", sa.String(length=500), nullable=False),
        sa.Column("body_text", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=True),
        sa.Column("supersedes", sa.String(length=64), nullable=True),
        sa.Column("source_artifact_id", sa.String(length=64), nullable=True),
        sa.Column("from_strangers", sa.Boolean(), nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_memory_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_substrate_memory")),
    )
    op.create_index(
        "ix_substrate_memory_source_artifact_id",
        "substrate_memory",
        ["organisation_id", "source_artifact_id"],
        unique=False,
    )
    op.create_index(
        "ix_substrate_memory_updated_at", "substrate_memory", ["organisation_id", "updated_at"], unique=False
    )
    op.create_index("uq_substrate_memory_id", "substrate_memory", ["organisation_id", "id"], unique=True)
    op.create_table(
        "substrate_policy_conflicts",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("action_id", sa.String(length=64), nullable=False),
        sa.Column("principle_id", sa.String(length=64), nullable=False),
        sa.Column("constraint_type", sa.String(length=30), nullable=False),
        sa.Column("message", sa.String(length=500), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("resolution", sa.String(length=30), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("resolved_by", sa.String(length=100), nullable=True),
        sa.Column("resolved_at", Instant, nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_policy_conflicts_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_substrate_policy_conflicts")),
    )
    op.create_index(
        "ix_substrate_policy_conflicts_action_id",
        "substrate_policy_conflicts",
        ["organisation_id", "action_id"],
        unique=False,
    )
    op.create_table(
        "substrate_settings",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("yolo_mode", sa.Boolean(), nullable=False),
        sa.Column("self_entity_id", sa.String(length=64), nullable=False),
        sa.Column("provisioned_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_settings_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", name=op.f("pk_substrate_settings")),
    )
    op.create_table(
        "substrate_snapshots",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("snapshot_date", sa.Date(), nullable=False),
        sa.Column("counts", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_snapshots_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "snapshot_date", name=op.f("pk_substrate_snapshots")),
    )
    op.create_table(
        "substrate_source_artifacts",
        sa.Column("organisation_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("kind", sa.String(length=100), nullable=False),
        sa.Column("external_system", sa.String(length=100), nullable=True),
        sa.Column("external_id", sa.String(length=300), nullable=True),
        sa.Column("title", sa.String(length=500), nullable=False),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=True),
        sa.Column("storage_object_id", sa.String(length=100), nullable=True),
        sa.Column("url", sa.String(length=2000), nullable=True),
        sa.Column("links", Json, nullable=True),
        sa.Column("attrs", Json, nullable=False),
        sa.Column("source_app_id", sa.String(length=36), nullable=True),
        sa.Column("action_id", sa.String(length=64), nullable=False),
        sa.Column("from_strangers", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name=op.f("fk_substrate_source_artifacts_organisation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organisation_id", "id", name=op.f("pk_substrate_source_artifacts")),
    )
    op.create_index(
        "ix_substrate_source_artifacts_updated_at",
        "substrate_source_artifacts",
        ["organisation_id", "updated_at"],
        unique=False,
    )
    op.create_index(
        "uq_substrate_source_artifacts_external_id",
        "substrate_source_artifacts",
        ["organisation_id", "external_system", "external_id"],
        unique=True,
        sqlite_where=sa.text("external_id IS NOT NULL"),
        postgresql_where=sa.text("external_id IS NOT NULL"),
    )
