"""The room of files is counted for each user and each organisation, and files are found by name through an index."""

import sqlalchemy as sa
from alembic import op

revision = "0074"
down_revision = "0073"


def upgrade() -> None:
    op.create_index("ix_files_app_id_filename_id", "files", ["app_id", "filename", "id"])
    op.add_column("file_usage", sa.Column("organisation_id", sa.String(36)))
    op.create_index("ix_file_usage_organisation_id", "file_usage", ["organisation_id"])
    op.create_table(
        "file_usage_by_user",
        sa.Column("app_id", sa.String(36), primary_key=True),
        sa.Column("user_id", sa.String(36), primary_key=True),
        sa.Column("used_bytes", sa.BigInteger, nullable=False),
    )
    op.execute(
        "INSERT INTO file_usage_by_user (app_id, user_id, used_bytes)"
        " SELECT app_id, user_id, sum(size_bytes) FROM files"
        " WHERE stored_at IS NOT NULL AND user_id IS NOT NULL GROUP BY app_id, user_id"
    )
    # The apps are in the home region's database; in that of another region, each upload says whose app it is.
    op.execute(
        "UPDATE file_usage SET organisation_id = (SELECT organisation_id FROM apps WHERE apps.id = file_usage.app_id)"
    )
