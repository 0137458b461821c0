"""Chooses the rare words of a query by which rows are selected, so that common words do not make a search slow."""

from collections.abc import Sequence
from functools import cache

from sqlalchemy import Integer, TextualSelect, column, text

from baobab.storage.sql.database import Reader, mark_long


async def part_words(
    reader: Reader, dialect: str, table: str, words: Sequence[str], most: int
) -> tuple[list[str], list[str]]:
    """Returns the rarest words, of which at most `most` rows have any, and the other words. There is at least one rare
    word.

    table: the rows, which have a column `words_vector` in Postgres, and a full-text index `<table>_fts` in SQLite.
    words: different ones, as the index has them.
    """
    if len(words) <= 1:
        return list(words), []
    quote = "'{}'" if dialect == "postgresql" else '"{}"'
    parameters = {f"word{number}": quote.format(word) for number, word in enumerate(words)}
    counts = (await reader.execute(_build_count(dialect, table, len(words), most), parameters)).one()
    rarer, everyday, together = list[str](), list[str](), 0
    for count, word in sorted(zip(counts, words, strict=True)):
        together += count
        (everyday if rarer and together > most else rarer).append(word)
    return rarer, everyday


@cache
def _build_count(dialect: str, table: str, words: int, most: int) -> TextualSelect:
    """Builds the statement that counts the rows with each word, up to a limit: most rows may have a common word."""
    source = f"{table}_fts WHERE {table}_fts MATCH :word{{}}"
    if dialect == "postgresql":
        source = f"{table} WHERE words_vector @@ to_tsquery('simple'::regconfig, :word{{}})"
    count = f"(SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {most + 1}) AS counted)"  # noqa: S608 - names of ours
    counts = text(f"SELECT {', '.join(count.format(number) for number in range(words))}")
    return mark_long(counts.columns(*(column(f"count{number}", Integer) for number in range(words))))
