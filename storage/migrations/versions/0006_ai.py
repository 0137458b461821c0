"""An app's settings for models."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "app_ai",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("default_model", sa.String(length=200), nullable=True),
        sa.Column("max_tokens", sa.Integer(), nullable=True),
        sa.Column("allowed_models", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("fallback_models", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("byok_key", sa.Text(), nullable=True),
        sa.Column("byok_provider", sa.String(length=60), nullable=True),
        sa.Column("byok_last4", sa.String(length=4), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["id"], ["apps.id"], name=op.f("fk_app_ai_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_app_ai")),
    )
