"""Search among tools: what a model asks for in its own words, ranked (BM25 over weighted fields)."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from baobab.tools.tool import Tool

_WORD = re.compile(r"[a-z0-9]+")
# What stands in every sentence tells no tool from another.
_SILENT = frozenset(
    _WORD.findall("a an and are as at be by can do for from how i in is it me my of on or that the this to with you")
)
_NAME_WEIGHT = 4
_SUMMARY_WEIGHT = 2
_SATURATION = 1.2
_LENGTH_SHARE = 0.6


class Index:
    """Made once for a list of tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools
        self._counts = [_terms(tool) for tool in tools]
        self._lengths = [counts.total() for counts in self._counts]
        self._mean = sum(self._lengths) / max(1, len(tools))
        self._tools_with: Counter[str] = Counter(word for counts in self._counts for word in counts)

    def best(self, query: str, limit: int) -> list[Tool]:
        """At most `limit` tools, the best first; a tool that shares no word with the query is not among them."""
        words = set(_words(query))
        scored = [(self._score(at, words), at) for at in range(len(self._tools))]
        found = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: (-pair[0], self._tools[pair[1]].name))
        return [self._tools[at] for _, at in found[:limit]]

    def _score(self, at: int, words: Iterable[str]) -> float:
        counts, score = self._counts[at], 0.0
        length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * self._lengths[at] / (self._mean or 1)
        for word in words:
            count = counts.get(word, 0)
            if count:
                having = self._tools_with[word]
                rarity = math.log(1 + (len(self._tools) - having + 0.5) / (having + 0.5))
                score += rarity * count * (_SATURATION + 1) / (count + _SATURATION * length)
        return score


def _terms(tool: Tool) -> Counter[str]:
    terms: Counter[str] = Counter()
    for word in _words(f"{tool.name} {tool.toolset.name}"):
        terms[word] += _NAME_WEIGHT
    for word in _words(tool.summary):
        terms[word] += _SUMMARY_WEIGHT
    terms.update(_words(f"{tool.description} {tool.toolset.description}"))
    for name, schema in tool.input_schema.get("properties", {}).items():
        terms.update(_words(f"{name} {schema.get('description', '')}"))
    return terms


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _SILENT]


def _stem(word: str) -> str:
    """Fold what mostly means the same: key and keys, delete and deletes and deleted."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending).removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word
