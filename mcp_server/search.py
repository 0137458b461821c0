"""Search among tools: what people ask for in their own words, by the words and by the meaning of a tool's text."""

import asyncio
import logging
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from operator import add, mul
from threading import Lock
from typing import TypeVar

import snowballstemmer

from baobab.runtime.gateway.builtin.embeddings import MINILM, list_installed, load_embedder
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import name_operations

T = TypeVar("T")

_log = logging.getLogger(__name__)

_WORD = re.compile(r"[^\W_]+")
_STEMMERS = [snowballstemmer.stemmer(language) for language in ("english", "german", "spanish")]
_stemming = Lock()
# What stands in every sentence tells no tool from another.
_COMMON = frozenset(
    _WORD.findall(
        "a an and any are as at be been but by can could do does for from get gets give had has have how i if in into "
        "is it its let me my need no not of on one or our please should so some that the their them then there these "
        "this those to up us want was we were what when where which who why will with would you your "
        "aber als am an auf aus bei bin bis das dass dein dem den der des die dies ein eine einem einen einer es euch "
        "fur hat ich ihr im in ist kann man mein meine meinen mich mir mit nach nicht noch oder sich sie sind so soll "
        "uber um und uns vom von vor was wenn wer wie wird wo wir zu zum zur "
        "al como con cual cuando de del el ella en es esta este esto estoy ha hacer hay la las le lo los mi mis muy no "
        "o para pero por puedo que quiero se si sin son su sus tu un una unas unos y ya"
    )
)

# How much each part of a tool's text counts.
_NAME, _SUMMARY, _KEYWORDS, _DESCRIPTION, _ARGUMENTS = 3.0, 2.0, 2.0, 0.5, 0.3
_SATURATION = 1.2
_LENGTH_SHARE = 0.4
# A word that no tool has counts as one of ordinary rarity: the less of a query is known, the more its meaning decides.
_UNKNOWN = 3.0
_SHORTEST_COMPARED = 5
_ALIKE = 0.55

_MEANING_SHARE = 0.6
_LEAST_MEANING = 0.25
"""The similarity from which a tool is found although it shares no word with the query."""
_MOST_WAITING = 16
_REMEMBERED = 1000


class ToolIndex:
    """Made of all tools at the first search. Threads do the work, so the event loop is free.

    Without the weights of the sentence model, and until it has read the tools, words alone decide.

    patience_seconds: how long a search waits for the model to have read the tools. model: None for words alone.
    """

    def __init__(
        self, tools: Sequence[Tool], *, timeout_seconds: float = 2.0, model: str | None = list_installed()[0]
    ) -> None:
        self._tools = tools
        self._timeout_seconds = timeout_seconds
        self._model = model
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tool-search")
        self._waiting = 0
        self._reading: tuple[asyncio.Task[_Words], asyncio.Task[_Meanings | None]] | None = None

    async def find_best(self, query: str, limit: int, among: Collection[str]) -> list[Tool]:
        """At most `limit` of the tools named in `among`, the best first; none that has nothing to do with the query."""
        words, meanings = await self._read_tools()
        if meanings is None or self._waiting >= _MOST_WAITING:
            scores = await asyncio.to_thread(words.scores, query)
        else:
            self._waiting += 1
            try:
                scores = await self._run_in_thread(lambda: list(map(add, words.scores(query), meanings.scores(query))))
            finally:
                self._waiting -= 1
        found = [(-score, tool.name, tool) for score, tool in zip(scores, self._tools, strict=True) if score > 0]
        return [tool for _, name, tool in sorted(found) if name in among][:limit]

    async def _read_tools(self) -> tuple["_Words", "_Meanings | None"]:
        """What is known of the tools: their words; their meanings where the model has read them, or does so soon."""
        if self._reading is None:
            words = asyncio.create_task(asyncio.to_thread(_Words, self._tools))
            self._reading = words, asyncio.create_task(self._build_meanings())
        reading_words, reading_meanings = self._reading
        words_read = await asyncio.shield(reading_words)
        if not reading_meanings.done():
            await asyncio.wait([reading_meanings], timeout=self._timeout_seconds)
        return words_read, reading_meanings.result() if reading_meanings.done() else None

    async def _build_meanings(self) -> "_Meanings | None":
        if self._model != MINILM:
            return None
        try:
            return await self._run_in_thread(lambda: _Meanings(self._tools, MINILM))
        except (OSError, ValueError) as exc:
            _log.warning("tools are searched by words alone", extra={"reason": str(exc)[:300]})
            return None

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class _Meanings:
    """How near the texts of tools are to a query, by the sentence model. It knows English."""

    def __init__(self, tools: Sequence[Tool], model: str) -> None:
        self._embedder = load_embedder(model)
        self._vectors = _embed_texts(model, tuple(f"{tool.summary} {tool.keywords.split(';')[0]}" for tool in tools))
        self.scores = lru_cache(_REMEMBERED)(self._scores)

    def _scores(self, query: str) -> Sequence[float]:
        (asked,) = self._embedder.embed([query])
        near = [sum(map(mul, asked, vector)) for vector in self._vectors]
        return [_MEANING_SHARE * likeness if likeness >= _LEAST_MEANING else 0.0 for likeness in near]


@lru_cache(1)
def _embed_texts(model: str, texts: tuple[str, ...]) -> Sequence[Sequence[float]]:
    """Three seconds of a processor for all tools, so once in a process."""
    return load_embedder(model).embed(texts)


class _Words:
    """How much of a query's words the texts of tools have (BM25 over weighted parts), 0 to about 1."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        counts = [_weigh_stems(tool) for tool in tools]
        mean = sum(sum(weights.values()) for weights in counts) / max(1, len(tools))
        having = Counter(stem for weights in counts for stem in weights)
        self._tools = len(tools)
        self._rarity = {
            stem: math.log(1 + (len(tools) - number + 0.5) / (number + 0.5)) for stem, number in having.items()
        }
        # What a tool gets for each stem that it has: a query only adds up.
        self._gains: dict[str, dict[int, float]] = {stem: {} for stem in having}
        for at, weights in enumerate(counts):
            length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * sum(weights.values()) / mean
            for stem, weight in weights.items():
                gain = weight * (_SATURATION + 1) / (weight + _SATURATION * length)
                self._gains[stem][at] = gain * self._rarity[stem]
        self._parts = {stem: _word_parts(stem) for stem in having if len(stem) >= _SHORTEST_COMPARED}

    def scores(self, query: str) -> Sequence[float]:
        scores, most = [0.0] * self._tools, 0.0
        for word in dict.fromkeys(_content_words(query)):
            known = [(stem, 1.0) for stem in _stems(word) if stem in self._gains] or list(self._nearest(word))
            if not known:
                most += _UNKNOWN
                continue
            most += max(self._rarity[stem] for stem, _ in known) * (_SATURATION + 1)
            gained: dict[int, float] = {}
            for stem, likeness in known:
                for at, gain in self._gains[stem].items():
                    gained[at] = max(gained.get(at, 0.0), gain * likeness)
            for at, gain in gained.items():
                scores[at] += gain
        return [score / most for score in scores] if most else scores

    def _nearest(self, word: str) -> Iterator[tuple[str, float]]:
        """Known stems that an unknown word may be meant for, or is put together from, with how alike they are."""
        if len(word) < _SHORTEST_COMPARED:
            return
        asked = _word_parts(word)
        for stem, parts in self._parts.items():
            if stem in word:
                yield stem, len(stem) / len(word)
            else:
                alike = 2 * len(asked & parts) / (len(asked) + len(parts))
                if alike >= _ALIKE:
                    yield stem, alike


def _weigh_stems(tool: Tool) -> dict[str, float]:
    """The stems of a tool's text, each with what it counts."""
    weights: defaultdict[str, float] = defaultdict(float)
    arguments = tool.input_schema.get("properties", {})
    texts = (
        (_NAME, tool.name),
        (_SUMMARY, tool.summary),
        (_KEYWORDS, tool.keywords),
        (_DESCRIPTION, f"{name_operations(tool.description)} {tool.toolset.name} {tool.toolset.description}"),
        (_ARGUMENTS, name_operations(" ".join(f"{n} {s.get('description', '')}" for n, s in arguments.items()))),
    )
    for weight, text in texts:
        for word in _content_words(text):
            for stem in _stems(word):
                weights[stem] += weight
    return weights


def _content_words(text: str) -> Iterable[str]:
    """The words of a text that say what it is about; all of them where none does."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = _WORD.findall(plain)
    return [word for word in words if word not in _COMMON] or words


@lru_cache(20_000)
def _stems(word: str) -> frozenset[str]:
    """What mostly means the same has a stem in common, in whichever language it is; nobody says which it is."""
    # A stemmer keeps the word that it works on in itself.
    with _stemming:
        return frozenset((word, *(stemmer.stemWord(word) for stemmer in _STEMMERS)))


def _word_parts(word: str) -> frozenset[str]:
    bounded = f"<{word}>"
    return frozenset(bounded[at : at + 3] for at in range(len(bounded) - 2))
