"""An index of short texts in English, German, Spanish and French, which finds them by the words of a question."""

import math
import re
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

import snowballstemmer

_WORD = re.compile(r"[^\W_]+")
_STEMMERS = {
    code: snowballstemmer.stemmer(language)
    for code, language in (("en", "english"), ("de", "german"), ("es", "spanish"), ("fr", "french"))
}
_stemming = Lock()
# Words that occur in every sentence do not distinguish texts.
_COMMON = frozenset(
    _WORD.findall(
        "a an and any are as at be been but by can could do does for from get gets give had has have how i if in into "
        "is it its let me my need no not of on one or our please should so some something that the their them then "
        "there these too "
        "this those to up us want was we were what when where which who why will with would you your "
        "am did gonna gotta hows just lets pls really thats theres wanna whats whos "
        "aber als am an auf aus bei bin bis das dass dein dem den der des die dies ein eine einem einen einer es euch "
        "fur hat ich ihr im in ist kann man mein meine meinen mich mir mit nach nicht noch oder sich sie sind so soll "
        "welche welchen welcher welches sollen konnen uber um und uns vom von vor was wenn wer wie wird wo wir zu zum "
        "zur "
        "al como con cual cuando de del el ella en es esta este esto estoy ha hacer hay la las le lo los mi mis muy no "
        "cuales puede o para pero por puedo que quiero se si sin son su sus tu un una unas unos y ya "
        "au aux avec ce ces cet cette comment dans des du elle est et il ils je leur leurs les ma mes mon ne nos notre "
        "nous on ou par pas peut peux pour quand que quel quelle quels qui sa sans ses son sont sur tu une veux vos "
        "votre vous l d j m n s t c qu doit"
    )
)
_SATURATION = 1.2
_LENGTH_SHARE = 0.15
_PHRASE_SHARE = 0.35
"""How much of a score comes from the one phrase of a text that is most like the question."""
_SAME, _SAME_PHRASE = 0.99, 0.2
"""The likeness from which on a question is a phrase of a text, and what that adds to the score."""
# A word that no text has counts like one of average rarity.
_UNKNOWN = 3.0
_SHORTEST_COMPARED = 3
_SHORTEST_PART = 5
_ALIKE = 0.6
_SLIP = 0.9
_SYNONYM = 0.9
_RECURRING = 1.5
"""How much more a word counts that says when something is done again: no tool that does it once is the answer."""
_REMEMBERED = 1000

Likenesses = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class IndexedText:
    """A text in parts, each with its language and the weight of its words, and phrases that people use for it, each
    with its language.
    """

    parts: Sequence[tuple[float, str, str]]
    phrases: Sequence[tuple[str, str]] = ()


class TextIndex:
    """Scores texts from 0 to about 1: by the words that they share with a question, weighted by their rarity (BM25),
    and by the phrase that comes nearest to it. It depends on nothing but the texts.
    """

    def __init__(self, texts: Sequence[IndexedText]) -> None:
        counts = [_weigh_stems(text) for text in texts]
        mean = sum(sum(weights.values()) for weights in counts) / max(1, len(texts))
        texts_with_stem = Counter(stem for weights in counts for stem in weights)
        self._texts = len(texts)
        self._rarity = {
            stem: math.log(1 + (len(texts) - number + 0.5) / (number + 0.5)) for stem, number in texts_with_stem.items()
        }
        # The score of each stem for each text, computed ahead: a question only adds them up.
        self._gains: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for at, weights in enumerate(counts):
            length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * sum(weights.values()) / mean
            for stem, weight in weights.items():
                gain = weight * (_SATURATION + 1) / (weight + _SATURATION * length)
                self._gains[stem][at] = gain * self._rarity[stem]
        self._phrases: list[tuple[int, float]] = []
        """The text that a phrase belongs to, and the weight of the phrase's words."""
        self._phrases_with_stem: defaultdict[str, set[int]] = defaultdict(set)
        for at, text in enumerate(texts):
            for language, phrase in text.phrases:
                self._add_phrase(at, language, phrase)
        self._word_parts = {
            stem: _split_into_parts(stem) for stem in self._rarity if len(stem) >= _SHORTEST_PART and stem[0] != "="
        }
        self._by_length: defaultdict[int, list[str]] = defaultdict(list)
        for stem in self._rarity:
            self._by_length[len(stem)].append(stem)
        self.scores = lru_cache(_REMEMBERED)(self._score)

    def _add_phrase(self, at: int, language: str, phrase: str) -> None:
        weight = 0.0
        for word in dict.fromkeys(_content_words(phrase)):
            stems = _forms(word, (language,))
            weight += max(self._rarity.get(stem, _UNKNOWN) for stem in stems)
            for stem in stems:
                self._phrases_with_stem[stem].add(len(self._phrases))
        self._phrases.append((at, weight))

    def _score(self, question: str) -> Sequence[float]:
        gains, most = [0.0] * self._texts, 0.0
        overlaps: defaultdict[int, float] = defaultdict(float)
        weight_of_question = 0.0
        for word in dict.fromkeys(_content_words(question)):
            stems = self._find_stems(word)
            if not stems:
                most += _UNKNOWN
                weight_of_question += _UNKNOWN
                continue
            share = _RECURRING if ("=schedule", _SYNONYM) in stems else 1.0
            rarity = max(self._rarity[stem] for stem, _ in stems) * share
            most += rarity * (_SATURATION + 1)
            weight_of_question += rarity
            best_gains: dict[int, float] = {}
            best_phrases: dict[int, float] = {}
            for stem, likeness in stems:
                for at, gain in self._gains[stem].items():
                    best_gains[at] = max(best_gains.get(at, 0.0), gain * likeness * share)
                for phrase in self._phrases_with_stem.get(stem, ()):
                    shared_weight = min(rarity, self._rarity.get(stem, rarity) * share) * likeness
                    best_phrases[phrase] = max(best_phrases.get(phrase, 0.0), shared_weight)
            for at, gain in best_gains.items():
                gains[at] += gain
            for phrase, shared_weight in best_phrases.items():
                overlaps[phrase] += shared_weight
        if not most:
            return gains
        likenesses = [0.0] * self._texts
        for phrase, overlap in overlaps.items():
            at, weight = self._phrases[phrase]
            likenesses[at] = max(likenesses[at], overlap / math.sqrt(weight * weight_of_question))
        return [
            (1 - _PHRASE_SHARE) * gain / most + _PHRASE_SHARE * likeness + (_SAME_PHRASE if likeness > _SAME else 0.0)
            for gain, likeness in zip(gains, likenesses, strict=True)
        ]

    def _find_stems(self, word: str) -> Likenesses:
        """Returns the known stems of a word, or those of words that it may be a slip of or that it is made of."""
        # The language of a question is unknown.
        known_stems = [
            (stem, _SYNONYM if stem.startswith("=") else 1.0)
            for stem in sorted(_forms(word, tuple(_STEMMERS)))
            if stem in self._rarity
        ]
        return known_stems or [*self._find_slips(word)] or [*self._find_parts(word)]

    def _find_slips(self, word: str) -> Iterator[tuple[str, float]]:
        """Yields known words that differ from a word by one slip of the fingers, or by two if it is long."""
        if len(word) < _SHORTEST_COMPARED or word.isdigit():
            return
        most_slips = 1 if len(word) < 8 else 2
        best: list[tuple[int, str]] = []
        for length in range(len(word) - most_slips, len(word) + most_slips + 1):
            for known_stem in self._by_length.get(length, ()):
                if len(known_stem) >= _SHORTEST_COMPARED and known_stem[0] != "=":
                    slips = count_slips(word, known_stem, most_slips)
                    if slips <= most_slips:
                        best.append((slips, known_stem))
        if best:
            least = min(best)[0]
            for slips, known_stem in best:
                if slips == least:
                    likeness = _SLIP if slips == 1 else _SLIP * 0.8
                    # The first letter is seldom wrong.
                    yield known_stem, likeness if known_stem[0] == word[0] else likeness * 0.6

    def _find_parts(self, word: str) -> Iterator[tuple[str, float]]:
        """Yields known stems that an unknown word resembles or contains, each with its likeness."""
        if len(word) < _SHORTEST_PART:
            return
        parts_of_word = _split_into_parts(word)
        for stem, parts in self._word_parts.items():
            if stem in word:
                yield stem, len(stem) / len(word)
            else:
                likeness = 2 * len(parts_of_word & parts) / (len(parts_of_word) + len(parts))
                if likeness >= _ALIKE:
                    yield stem, likeness


def count_slips(word: str, other: str, most: int) -> int:
    """Counts the letters to add, leave out, replace or swap with the next one to get from a word to another; more than
    `most` if there are more.
    """
    before_last: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        row = [i]
        for j, other_letter in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == other_letter:
                cost = min(cost, before_last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
        before_last, last = last, row
    return last[-1]


def _weigh_stems(text: IndexedText) -> dict[str, float]:
    weights: defaultdict[str, float] = defaultdict(float)
    for weight, language, part in text.parts:
        for word in _content_words(part):
            for stem in _forms(word, (language,)):
                weights[stem] += weight
    return weights


def _content_words(text: str) -> Iterable[str]:
    """Returns the words of a text without common words; all of them if it has only those."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = _WORD.findall(plain)
    return [word for word in words if word not in _COMMON] or words


def find_groups(text: str) -> frozenset[str]:
    """Returns the names of the groups of synonyms to which the words of a text belong, in any language."""
    groups = _read_groups()
    return frozenset(
        group
        for word in _content_words(text)
        for form in _forms(word, tuple(_STEMMERS))
        for group in groups.get(form, ())
    )


def find_words(text: str) -> frozenset[str]:
    """Returns the stems of a text's words, in English."""
    return frozenset(_stem(word, "en") for word in _content_words(text))


@lru_cache(20_000)
def _forms(word: str, languages: tuple[str, ...]) -> frozenset[str]:
    """Returns a word, its stems in some languages, and the names of the groups of synonyms that it belongs to."""
    stems = {word, *(_stem(word, language) for language in languages)}
    groups = _read_groups()
    return frozenset(stems | {f"={group}" for stem in stems for group in groups.get(stem, ())})


@cache
def _read_groups() -> Mapping[str, set[str]]:
    """Reads the groups of synonyms of each stem."""
    groups: defaultdict[str, set[str]] = defaultdict(set)
    file = Path(__file__).parent / "synonyms.toml"
    for group, words in tomllib.loads(file.read_text(encoding="utf-8")).items():
        for word in _content_words(words):
            for language in _STEMMERS:
                groups[_stem(word, language)].add(group)
            groups[word].add(group)
    return groups


@lru_cache(20_000)
def _stem(word: str, language: str) -> str:
    # Stemmers are not thread-safe.
    with _stemming:
        stem: str = _STEMMERS[language].stemWord(word)
        return stem


def _split_into_parts(word: str) -> frozenset[str]:
    padded_word = f"<{word}>"
    return frozenset(padded_word[at : at + 3] for at in range(len(padded_word) - 2))
