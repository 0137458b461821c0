"""The search of English texts: what a word is, and whether a text fulfils a search.

Postgres searches with its own `tsquery`. Here is the same for SQLite, and what both share: where words end, which words
are passed over, and how much of a text is searched.

A search is a tree: ["word", text, whether it may go on], ["and", x, ...], ["or", x, ...], ["not", x], and
["phrase", x, [distance, y], ...] of words that follow each other, or of an "or" of such words.
"""

import json
import re
from bisect import bisect_left
from collections import OrderedDict
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any

from baobab.storage.sql.deadline import Check

MOST_SEARCHED = 200_000
"""Characters of a text that are searched: Postgres's index of one text has at most a megabyte."""
LONGEST_WORD = 2046
"""Bytes of the longest word that Postgres finds; longer ones of a text are passed over."""
SEPARATORS = (
    r"\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7"
    r"\u2000-\u206f\u20a0-\u20cf\u2190-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030"
    r"\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
"""What words are not made of, in a form that the regular expressions of Python and of Postgres read alike.

What Postgres itself takes for a word depends on the locale that its data folder was made with.
"""
_WORD = re.compile(f"[^{SEPARATORS}\\x00]+")
_STOP_WORDS = frozenset(
    """i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
    it its itself they them their theirs themselves what which who whom this that these those am is are was were be been
    being have has had having do does did doing a an the and but if or because as until while of at by for with about
    against between into through during before after above below to from up down in out on off over under again further
    then once here there when where why how all any both each few more most other some such no nor not only own same so
    than too very s t can will just don should now""".split()  # noqa: SIM905 - one word a line would fill pages
)
"""The words that Postgres's English search passes over."""
_ASK_EVERY = 500
"""How many words of a text are read between two looks at the deadline."""
_LAST_POSITION, _MOST_POSITIONS = 16_383, 255
"""Postgres counts words up to this one, and keeps so many places of each."""

Positions = dict[str, list[int]]


def split_words(text: str) -> list[str]:
    """Returns the words of a text, in lower case."""
    return _WORD.findall(text.lower())


def is_stop_word(word: str) -> bool:
    return word in _STOP_WORDS


class _Index:
    """The words of one text and their positions."""

    def __init__(self, positions_of: Positions) -> None:
        self.positions_of = positions_of

    @cached_property
    def words(self) -> list[str]:
        """All words, sorted."""
        return sorted(self.positions_of)


def search_text(check: Check, text: str | None, search: str | None) -> bool | None:
    """Returns whether a text fulfils a search, which is JSON. A search of stop words only, which is null, finds
    nothing.
    """
    if text is None or search is None:
        return None
    tree = _read_search(search)
    return tree is not None and _holds(check, tree, _find_index(check, text[:MOST_SEARCHED]))


_indexes: OrderedDict[str, _Index] = OrderedDict()
"""Of the texts that were searched last: several conditions search the same one."""
_MOST_INDEXES = 4
_indexes_lock = Lock()


def _find_index(check: Check, text: str) -> _Index:
    with _indexes_lock:
        index = _indexes.get(text)
    if index is None:
        index = _Index(_index(check, text))
        with _indexes_lock:
            _indexes[text] = index
            while len(_indexes) > _MOST_INDEXES:
                _indexes.popitem(last=False)
    return index


@lru_cache(maxsize=100)
def _read_search(search: str) -> Any:
    return json.loads(search)


def _index(check: Check, text: str) -> Positions:
    positions_of: Positions = {}
    position = 0
    for number, word in enumerate(split_words(text)):
        if number % _ASK_EVERY == 0:
            check()
        if len(word) * 4 > LONGEST_WORD and len(word.encode()) > LONGEST_WORD:
            continue
        position += 1
        if word not in _STOP_WORDS:
            places = positions_of.setdefault(_stem(word), [])
            if len(places) < _MOST_POSITIONS and (not places or places[-1] < _LAST_POSITION):
                places.append(min(position, _LAST_POSITION))
    return positions_of


def _holds(check: Check, tree: Any, index: _Index) -> bool:
    match tree:
        case ["not", part]:
            return not _holds(check, part, index)
        case ["and", *parts]:
            return all(_holds(check, part, index) for part in parts)
        case ["or", *parts]:
            return any(_holds(check, part, index) for part in parts)
        case ["phrase", first, *others]:
            phrase_ends = _find_places(check, first, index)
            for distance, part in others:
                phrase_ends = {place + distance for place in phrase_ends} & _find_places(check, part, index)
            return bool(phrase_ends)
    return bool(_find_places(check, tree, index))


def _find_places(check: Check, tree: Any, index: _Index) -> set[int]:
    """Returns the positions of a word, or of any of several words."""
    check()
    kind, *parts = tree
    if kind == "or":
        return set().union(*(_find_places(check, part, index) for part in parts))
    stem = _stem(parts[0])
    if not parts[1]:
        return set(index.positions_of.get(stem, ()))
    places: set[int] = set()
    for place in range(bisect_left(index.words, stem), len(index.words)):
        if not index.words[place].startswith(stem):
            break
        places.update(index.positions_of[index.words[place]])
    return places


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    # Postgres has no stems of what holds digits.
    stem: str = word if any(map(str.isdigit, word)) else _stemmer().stemWord(word)
    return stem


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    # Few need it, and not at the start.
    from snowballstemmer import stemmer  # noqa: PLC0415

    return stemmer("english")
