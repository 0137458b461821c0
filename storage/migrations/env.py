"""Alembic's environment: it uses the connection, and the transaction, that the caller passes."""

from alembic import context

from baobab.storage.sql.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=metadata, render_as_batch=True, transaction_per_migration=False
)
context.run_migrations()
