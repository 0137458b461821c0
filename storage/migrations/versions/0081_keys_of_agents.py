"""The keys of agents, tool servers and generation jobs begin with the app, so that a database can spread them by app.

Workers of the version before find rows by their id alone: an index of it remains.
"""

from alembic import op

revision = "0081"
down_revision = "0080"

# In the order in which the data of an app is erased, so that neither waits for the other.
_TABLES = ("generation_jobs", "agents", "agent_tool_servers")


def upgrade() -> None:
    for table in _TABLES:
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(f"pk_{table}", type_="primary")
            batch.create_primary_key(f"pk_{table}", ["app_id", "id"])
        op.create_index(f"ix_{table}_id", table, ["id"])
    # The key begins with the same column.
    op.drop_index("ix_generation_jobs_app_id", "generation_jobs")
