"""The search in the documentation: which sections of which pages answer a question."""

import asyncio
import re
from functools import cache

from baobab.tools.core.guides import guides
from baobab.tools.core.text_index import IndexedText, TextIndex, find_words
from baobab.tools.system.schemas import FoundSection

_LISTS = ("tools", "errors", "index")
"""Pages that only list what the search for tools and the errors themselves say better."""
_MOST_FOUND = 8
_MOST_INDEXED = 2000
_MOST_EXCERPT = 300
# A heading, an entry of a list and a row of a table are blocks of their own.
_BLOCK_END = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|[0-9]+\.) ?)|(?<=\|)\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z])")
_FENCED = re.compile(r"^```.*?^```[^\n]*\n?", re.MULTILINE | re.DOTALL)
_LEAST = 0.15
_TITLE, _TEXT = 3.0, 1.0


async def find_sections(question: str, page: str | None) -> list[FoundSection]:
    """Returns the sections that answer a question, best first, with the sentences of each that match it.

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
    """Returns the sentence of a text that shares most words with a question, and those after it that have room."""
    sentences = [each for block in _BLOCK_END.split(_FENCED.sub("", text)) for each in _split_sentences(block)][1:]
    if not sentences:
        return ""
    best = max(range(len(sentences)), key=lambda at: len(words & find_words(sentences[at])))
    excerpt = sentences[best]
    for following in sentences[best + 1 :]:
        if len(excerpt) + len(following) >= _MOST_EXCERPT:
            break
        excerpt += f" {following}"
    return excerpt if len(excerpt) <= _MOST_EXCERPT else f"{excerpt[: _MOST_EXCERPT - 3]}..."


def _split_sentences(block: str) -> list[str]:
    return [sentence for sentence in _SENTENCE_END.split(" ".join(block.split())) if sentence]
