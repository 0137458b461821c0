"""The memories of substrates are found by their words."""

from alembic import op

revision = "0054"
down_revision = "0053"

_SQLITE = (
    # It keeps the index and no copy of the words.
    "CREATE VIRTUAL TABLE substrate_memory_fts USING fts5(words, content='substrate_memory',"
    " content_rowid='number', tokenize='unicode61 remove_diacritics 0')",
    "CREATE TRIGGER substrate_memory_inserted AFTER INSERT ON substrate_memory BEGIN"
    " INSERT INTO substrate_memory_fts(rowid, words) VALUES (new.number, new.words); END",
    "CREATE TRIGGER substrate_memory_deleted AFTER DELETE ON substrate_memory BEGIN"
    " INSERT INTO substrate_memory_fts(substrate_memory_fts, rowid, words)"
    " VALUES ('delete', old.number, old.words); END",
    "CREATE TRIGGER substrate_memory_updated AFTER UPDATE ON substrate_memory BEGIN"
    " INSERT INTO substrate_memory_fts(substrate_memory_fts, rowid, words)"
    " VALUES ('delete', old.number, old.words);"
    " INSERT INTO substrate_memory_fts(rowid, words) VALUES (new.number, new.words); END",
)
_POSTGRES = (
    "ALTER TABLE substrate_memory ADD COLUMN words_vector tsvector"
    " GENERATED ALWAYS AS (to_tsvector('simple', words)) STORED",
    "CREATE INDEX ix_substrate_memory_words_vector ON substrate_memory USING gin (words_vector)",
)


def upgrade() -> None:
    for statement in _POSTGRES if op.get_bind().dialect.name == "postgresql" else _SQLITE:
        op.execute(statement)
