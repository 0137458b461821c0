"""Search among tools: ranks them by the words and by the meaning of a query."""

import asyncio
import logging
import math
import re
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.resources import files
from operator import add, mul
from threading import Lock
from typing import TypeVar

import snowballstemmer

from baobab.runtime.gateway.builtin.embeddings import MINILM, list_installed, load_embedder
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import Unavailable, name_operations

T = TypeVar("T")

_log = logging.getLogger(__name__)

_WORD = re.compile(r"[^\W_]+")
_STEMMERS = [snowballstemmer.stemmer(language) for language in ("english", "german", "spanish")]
_stemming = Lock()
# Words that occur in every sentence do not distinguish tools.
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
# A word that no tool has counts like one of average rarity: the fewer words are known, the more the meaning decides.
_UNKNOWN = 3.0
_SHORTEST_COMPARED = 5
_ALIKE = 0.55

_MEANING_SHARE = 0.6
_LEAST_MEANING = 0.25
"""The similarity from which a tool is found even if it shares no word with the query."""
_MOST_WAITING = 200
_REMEMBERED = 1000


LANGUAGES = ("en", "de", "es")


@lru_cache(1)
def read_search_words() -> dict[str, dict[str, str]]:
    """Reads what people call each tool, by the tool's name and the language, from the files of the domains."""
    words: dict[str, dict[str, str]] = {}
    for domain in files("baobab.tools").iterdir():
        file = domain / "search_words.toml"
        if file.is_file():
            words |= tomllib.loads(file.read_text(encoding="utf-8"))
    return words


class ToolIndex:
    """An index of all tools, built at the first search, in threads.

    Searches wait until the sentence model has read the tools, which takes some seconds once per process: the same query
    always finds the same tools. Where the weights of the model are not installed, only words count.

    model: None to use words alone.
    """

    def __init__(self, tools: Sequence[Tool], *, model: str | None = list_installed()[0]) -> None:
        self._tools = tools
        self._model = model
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tool-search")
        self._waiting = 0
        self._reading: tuple[asyncio.Task[_Words], asyncio.Task[_Meanings | None]] | None = None

    async def find_best(self, query: str, limit: int, among: Collection[str]) -> list[Tool]:
        """Returns at most `limit` of the tools named in `among`, best first. Tools without any match are left out.
        A query that is the name of a tool finds it first.

        Raises Unavailable if too many searches wait.
        """
        if self._waiting >= _MOST_WAITING:
            raise Unavailable("Too many searches for tools wait already.")
        self._waiting += 1
        try:
            words, meanings = await self._read_tools()
            if meanings is None:
                scores = await asyncio.to_thread(words.scores, query)
            else:
                scores = await self._run_in_thread(lambda: list(map(add, words.scores(query), meanings.scores(query))))
        finally:
            self._waiting -= 1
        matches = [
            (tool.name != query.strip(), -score, tool.name, tool)
            for score, tool in zip(scores, self._tools, strict=True)
            if score > 0
        ]
        return [tool for *_, name, tool in sorted(matches) if name in among][:limit]

    async def _read_tools(self) -> tuple["_Words", "_Meanings | None"]:
        """Returns the word index, and the meanings if there is a model, once it has read the tools."""
        if self._reading is None:
            words = asyncio.create_task(asyncio.to_thread(_Words, self._tools))
            self._reading = words, asyncio.create_task(self._build_meanings())
        reading_words, reading_meanings = self._reading
        return await asyncio.shield(reading_words), await asyncio.shield(reading_meanings)

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
    """Scores how close tools are to a query in meaning, by a sentence model for English."""

    def __init__(self, tools: Sequence[Tool], model: str) -> None:
        self._embedder = load_embedder(model)
        words = read_search_words()
        self._vectors = _embed_texts(
            model, tuple(f"{name_operations(tool.summary)} {words.get(tool.name, {}).get('en', '')}" for tool in tools)
        )
        self.scores = lru_cache(_REMEMBERED)(self._scores)

    def _scores(self, query: str) -> Sequence[float]:
        (query_vector,) = self._embedder.embed([query])
        similarities = [sum(map(mul, query_vector, vector)) for vector in self._vectors]
        return [_MEANING_SHARE * likeness if likeness >= _LEAST_MEANING else 0.0 for likeness in similarities]


@lru_cache(1)
def _embed_texts(model: str, texts: tuple[str, ...]) -> Sequence[Sequence[float]]:
    """Computes the vectors of all tools. It takes three seconds of CPU, so it runs once per process."""
    return load_embedder(model).embed(texts)


class _Words:
    """Scores how many of a query's words the texts of tools have (BM25 over weighted parts), from 0 to about 1."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        counts = [_weigh_stems(tool) for tool in tools]
        mean = sum(sum(weights.values()) for weights in counts) / max(1, len(tools))
        tools_with_stem = Counter(stem for weights in counts for stem in weights)
        self._tools = len(tools)
        self._rarity = {
            stem: math.log(1 + (len(tools) - number + 0.5) / (number + 0.5)) for stem, number in tools_with_stem.items()
        }
        # The score of each stem for each tool, computed ahead: a query only adds them up.
        self._gains: dict[str, dict[int, float]] = {stem: {} for stem in tools_with_stem}
        for at, weights in enumerate(counts):
            length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * sum(weights.values()) / mean
            for stem, weight in weights.items():
                gain = weight * (_SATURATION + 1) / (weight + _SATURATION * length)
                self._gains[stem][at] = gain * self._rarity[stem]
        self._parts = {stem: _word_parts(stem) for stem in tools_with_stem if len(stem) >= _SHORTEST_COMPARED}

    def scores(self, query: str) -> Sequence[float]:
        scores, most = [0.0] * self._tools, 0.0
        for word in dict.fromkeys(_content_words(query)):
            similar_stems = [(stem, 1.0) for stem in _stems(word) if stem in self._gains] or list(self._nearest(word))
            if not similar_stems:
                most += _UNKNOWN
                continue
            most += max(self._rarity[stem] for stem, _ in similar_stems) * (_SATURATION + 1)
            gains: dict[int, float] = {}
            for stem, likeness in similar_stems:
                for at, gain in self._gains[stem].items():
                    gains[at] = max(gains.get(at, 0.0), gain * likeness)
            for at, gain in gains.items():
                scores[at] += gain
        return [score / most for score in scores] if most else scores

    def _nearest(self, word: str) -> Iterator[tuple[str, float]]:
        """Yields known stems that an unknown word resembles or contains, each with its similarity."""
        if len(word) < _SHORTEST_COMPARED:
            return
        word_parts = _word_parts(word)
        for stem, parts in self._parts.items():
            if stem in word:
                yield stem, len(stem) / len(word)
            else:
                similarity = 2 * len(word_parts & parts) / (len(word_parts) + len(parts))
                if similarity >= _ALIKE:
                    yield stem, similarity


def _weigh_stems(tool: Tool) -> dict[str, float]:
    """Returns the stems of a tool's text, each with its weight."""
    weights: defaultdict[str, float] = defaultdict(float)
    arguments = tool.input_schema.get("properties", {})
    texts = (
        (_NAME, tool.name),
        (_SUMMARY, name_operations(tool.summary)),
        (_KEYWORDS, " ".join(read_search_words().get(tool.name, {}).values())),
        (_DESCRIPTION, f"{name_operations(tool.description)} {tool.toolset.name} {tool.toolset.description}"),
        (_ARGUMENTS, name_operations(" ".join(f"{n} {s.get('description', '')}" for n, s in arguments.items()))),
    )
    for weight, text in texts:
        for word in _content_words(text):
            for stem in _stems(word):
                weights[stem] += weight
    return weights


def _content_words(text: str) -> Iterable[str]:
    """Returns the words of a text without common words; all of them if it has only those."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = _WORD.findall(plain)
    return [word for word in words if word not in _COMMON] or words


@lru_cache(20_000)
def _stems(word: str) -> frozenset[str]:
    """Returns the stems of a word in every language, since the language of a query is unknown."""
    # Stemmers are not thread-safe.
    with _stemming:
        return frozenset((word, *(stemmer.stemWord(word) for stemmer in _STEMMERS)))


def _word_parts(word: str) -> frozenset[str]:
    padded_word = f"<{word}>"
    return frozenset(padded_word[at : at + 3] for at in range(len(padded_word) - 2))
