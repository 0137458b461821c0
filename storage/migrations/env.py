"""Alembic's way in: it runs on the connection, and in the transaction, that it is given."""

from alembic import context

from baobab.storage.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=metadata, render_as_batch=True, transaction_per_migration=False
)
context.run_migrations()
