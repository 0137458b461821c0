"""The search in the documentation: which sections of which pages answer a question."""

import asyncio
from functools import cache

from baobab.tools.core.guides import guides
from baobab.tools.core.text_index import IndexedText, TextIndex, find_words
from baobab.tools.system.schemas import FoundSection

_LISTS = ("tools", "errors", "index")
"""Pages that only list what the search for tools and the errors themselves say better."""
_MOST_FOUND = 8
_MOST_INDEXED = 2000
_MOST_EXCERPT = 200
_LEAST = 0.15
_TITLE, _TEXT = 3.0, 1.0


async def find_sections(question: str, page: str | None) -> list[FoundSection]:
    """Returns the sections that answer a question, best first, with the line of each that shares most words with it.

    page: the name of the only page to search.
    """
    return await asyncio.to_thread(_find_sections, question, page)


def _find_sections(question: str, page: str | None) -> list[FoundSection]:
    sections, index = _index_sections()
    candidates = sorted(zip(index.scores(question), sections, strict=True), key=lambda pair: -pair[0])
    words = find_words(question)
    sections_found: list[FoundSection] = []
    for score, (name, slug, title, text) in candidates:
        if score < _LEAST or len(sections_found) == _MOST_FOUND:
            break
        if page in (None, name):
            # Pieces of a long section are read by their section.
            entry: FoundSection = {"name": name, "section": slug, "title": title, "excerpt": _cut(text, words)}
            sections_found.append(entry)
    return sections_found


@cache
def _index_sections() -> tuple[list[tuple[str, str, str, str]], TextIndex]:
    """Returns the sections of all pages as page, slug, title and text, and their index."""
    sections = [
        (guide.name, part.slug, part.title, part.text)
        for guide in guides().values()
        if guide.name not in _LISTS
        for part in guide.parts
    ]
    titles = {guide.name: f"{guide.title} {guide.name}" for guide in guides().values()}
    texts = [
        IndexedText(
            [(_TITLE, "en", title), (_TITLE / 2, "en", titles[name]), (_TEXT, "en", text[:_MOST_INDEXED])],
            [("en", title), ("en", f"{titles[name]} {title}")],
        )
        for name, _, title, text in sections
    ]
    return sections, TextIndex(texts)


def _cut(text: str, words: frozenset[str]) -> str:
    """Returns the line of a text that shares most words with a question, cut to the length of an excerpt."""
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip() and not line.startswith("```")]
    best = max(lines, key=lambda line: len(words & find_words(line)), default="")
    return best if len(best) <= _MOST_EXCERPT else f"{best[: _MOST_EXCERPT - 3]}..."
