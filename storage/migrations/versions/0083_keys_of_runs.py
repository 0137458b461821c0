"""The keys of runs, of threads and of what belongs to them begin with the app, so that a database can spread them.

Workers of the version before insert rows without an app, which triggers fill in, and find rows by the former keys, of
which indexes remain. The next version drops both.
"""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0083"
down_revision = "0081"


class _Table(NamedTuple):
    """A table whose key changes. key: the columns after the app; owner: the table that names the app of a row, and the
    column with which the row refers to it; former: the columns of the index of the former key.
    """

    name: str
    key: Sequence[str]
    owner: tuple[str, str] | None = None
    references: bool = False
    former: Sequence[str] = ()
    is_unique: bool = True


_OF_RUN, _OF_THREAD = ("agent_runs", "run_id"), ("agent_runs", "thread_id")
# Those that others refer to come first, and others in the order in which they are read together.
_TABLES = (
    _Table("agent_runs", ["id"]),
    _Table("agent_threads", ["id"], former=["id"], is_unique=False),
    _Table("agent_messages", ["thread", "position"], ("agent_threads", "thread"), references=True),
    _Table("agent_events", ["run_id", "seq"], _OF_RUN, references=True, former=["run_id", "seq"], is_unique=False),
    _Table("agent_checkpoints", ["thread_id", "namespace", "id"], _OF_THREAD, former=["thread_id", "namespace", "id"]),
    _Table(
        "agent_writes",
        ["thread_id", "namespace", "checkpoint_id", "task_id", "position"],
        _OF_THREAD,
        former=["thread_id", "namespace", "checkpoint_id", "task_id", "position"],
    ),
    _Table("agent_pieces", ["thread_id", "digest"], _OF_THREAD, former=["thread_id", "digest"]),
    _Table(
        "agent_run_counts",
        ["agent_id", "subject", "hour"],
        ("agents", "agent_id"),
        former=["agent_id", "subject", "hour"],
    ),
    _Table("agent_stream_tokens", ["run_id", "digest"], _OF_RUN, references=True),
    _Table("agent_live_texts", ["run_id"], _OF_RUN, references=True),
    # It has had the app in its key.
    _Table("agent_model_calls", ["run_id", "step"], references=True),
)
_FILLED = [table for table in _TABLES if table.owner is not None]
# A fork stores the checkpoint with which it begins before its run.
_BEFORE_THE_RUN = ("agent_checkpoints", "agent_writes", "agent_pieces")


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        _alter_tables()
        _create_indexes()
        _create_triggers_of_postgres()
    else:
        indexes = _rebuild_tables()
        for index in indexes:
            op.execute(index)
        _create_indexes()
        _create_triggers_of_sqlite()


def _create_indexes() -> None:
    op.create_index("ix_agent_runs_id", "agent_runs", ["id"], unique=True)
    op.create_index("ix_agent_live_texts_run_id", "agent_live_texts", ["run_id"], unique=True)
    for table in _TABLES:
        if table.former:
            op.create_index(f"ix_{table.name}_former_key", table.name, list(table.former), unique=table.is_unique)


def _get_reference(table: _Table) -> tuple[str, list[str], list[str]]:
    """Returns the name of a foreign key, its columns, and those that it refers to."""
    parent, column = table.owner or _OF_RUN
    return f"fk_{table.name}_app_id_{column}", ["app_id", column], [f"{parent}.app_id", f"{parent}.id"]


def _alter_tables() -> None:
    names = ", ".join(table.name for table in _TABLES)
    op.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
    referring = [table for table in _TABLES if table.references]
    for table in referring:
        # Those of later revisions were not named by the convention.
        for reference in sa.inspect(op.get_bind()).get_foreign_keys(table.name):
            op.drop_constraint(str(reference["name"]), table.name, type_="foreignkey")
    for table in _TABLES:
        if table.name == "agent_model_calls":
            continue
        # Before the rows are changed, which costs less without an index.
        op.drop_constraint(f"pk_{table.name}", table.name, type_="primary")
        if table.owner is not None:
            op.add_column(table.name, sa.Column("app_id", sa.String(36)))
            owner, column = table.owner
            op.execute(
                f"UPDATE {table.name} AS child SET app_id = owner.app_id FROM {owner} AS owner"  # noqa: S608 - our names
                f" WHERE owner.id = child.{column}"
            )
            # What belongs to nothing is found by nobody.
            op.execute(f"DELETE FROM {table.name} WHERE app_id IS NULL")  # noqa: S608 - our names
            op.alter_column(table.name, "app_id", nullable=False)
        op.create_primary_key(f"pk_{table.name}", table.name, ["app_id", *table.key])
    for table in referring:
        name, columns, targets = _get_reference(table)
        parent = targets[0].partition(".")[0]
        op.create_foreign_key(name, table.name, parent, columns, ["app_id", "id"], ondelete="CASCADE")


def _rebuild_tables() -> list[str]:
    """Makes the tables anew, since SQLite changes no keys. Returns the statements that create their indexes again."""
    connection, reflected_tables, indexes = op.get_bind(), {}, []
    for table in _TABLES:
        reflected_tables[table.name] = sa.Table(table.name, sa.MetaData(), autoload_with=connection, resolve_fks=False)
        of_table = sa.text(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = :name AND sql <> ''"
        )
        for index, statement in connection.execute(of_table, {"name": table.name}).all():
            indexes.append(statement)
            op.execute(f"DROP INDEX {index}")
    for table in _TABLES:
        # References follow the renamed table, so that nothing refers to the new ones yet.
        op.rename_table(table.name, f"{table.name}_before")
    for table in _TABLES:
        columns = [
            sa.Column(column.name, column.type, nullable=column.nullable, server_default=column.server_default)
            for column in reflected_tables[table.name].columns
        ]
        names = [column.name for column in columns]
        values, rows = [f"old.{name}" for name in names], f"{table.name}_before AS old"
        if table.owner is not None:
            owner, column = table.owner
            # What belongs to nothing is found by nobody.
            rows += f" JOIN {owner} AS owner ON owner.id = old.{column}"
            # Empty until the trigger fills it in.
            columns.append(sa.Column("app_id", sa.String(36), nullable=False, server_default=""))
            names.append("app_id")
            values.append("owner.app_id")
        constraints: list[sa.Constraint] = [sa.PrimaryKeyConstraint("app_id", *table.key, name=f"pk_{table.name}")]
        if table.references:
            name, referring, targets = _get_reference(table)
            constraints.append(sa.ForeignKeyConstraint(referring, targets, name=name, ondelete="CASCADE"))
        op.create_table(table.name, *columns, *constraints)
        op.execute(f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(values)} FROM {rows}")  # noqa: S608 - our names
    for table in reversed(_TABLES):
        op.drop_table(f"{table.name}_before")
    return indexes


def _create_triggers_of_postgres() -> None:
    for owner, column in sorted({table.owner for table in _FILLED if table.owner is not None}):
        op.execute(
            f"CREATE FUNCTION fill_app_id_by_{column}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"  # noqa: S608
            f" NEW.app_id := coalesce((SELECT app_id FROM {owner} WHERE id = NEW.{column}), '');"
            " RETURN NEW; END $$"
        )
    for table in _FILLED:
        assert table.owner is not None
        op.execute(
            f"CREATE TRIGGER fill_app_id BEFORE INSERT ON {table.name} FOR EACH ROW WHEN (NEW.app_id IS NULL)"
            f" EXECUTE FUNCTION fill_app_id_by_{table.owner[1]}()"
        )
    op.execute(
        "CREATE FUNCTION fill_app_id_of_fork() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" {_fill_app_id_of_fork()} RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER fill_app_id_of_fork AFTER INSERT ON agent_runs FOR EACH ROW"
        " WHEN (NEW.forked_from IS NOT NULL) EXECUTE FUNCTION fill_app_id_of_fork()"
    )


def _create_triggers_of_sqlite() -> None:
    for table in _FILLED:
        assert table.owner is not None
        owner, column = table.owner
        op.execute(
            f"CREATE TRIGGER fill_app_id_of_{table.name} AFTER INSERT ON {table.name} WHEN NEW.app_id = '' BEGIN"  # noqa: S608 - our names
            f" UPDATE {table.name} SET app_id = coalesce((SELECT app_id FROM {owner} WHERE id = NEW.{column}), '')"
            " WHERE rowid = NEW.rowid; END"
        )
    op.execute(
        "CREATE TRIGGER fill_app_id_of_fork AFTER INSERT ON agent_runs WHEN NEW.forked_from IS NOT NULL"
        f" BEGIN {_fill_app_id_of_fork()} END"
    )


def _fill_app_id_of_fork() -> str:
    return " ".join(
        f"UPDATE {table} SET app_id = NEW.app_id WHERE thread_id = NEW.id AND app_id = '';"  # noqa: S608 - our names
        for table in _BEFORE_THE_RUN
    )
