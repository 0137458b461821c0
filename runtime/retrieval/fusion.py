"""Puts rankings together, and chooses results that differ from each other."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
_K = 60
"""Of reciprocal rank fusion: how much a place near the top counts more than one further down."""


def fuse_rankings(rankings: Sequence[Mapping[T, float]]) -> dict[T, float]:
    """Weighted reciprocal rank fusion: returns what was ranked, the best first.

    rankings: what each found, the best first, and how much it counts there, up to 1. The score of an item is the sum of
    its weight / (60 + its rank).
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, (item, weight) in enumerate(ranking.items(), 1):
            scores[item] = scores.get(item, 0.0) + weight / (_K + rank)
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def weigh_words(asked: frozenset[str], found: Mapping[T, str], power: int) -> dict[T, float]:
    """How much what a search by words found counts beside a search by meaning: less, the fewer of the words it has.

    asked: the words of the query, in the form in which texts are indexed. found: the words of each text, separated by
    spaces, the best first. Returns the part of the asked words that each has, to the power: a name or a number that was
    asked for counts in full, a text that shares only one everyday word with a question hardly at all.
    """
    return {item: (len(asked.intersection(words.split())) / len(asked)) ** power for item, words in found.items()}


def choose_diverse(
    relevance: Mapping[T, float], similarity: Mapping[T, Mapping[T, float]], count: int, diversity: float
) -> list[T]:
    """Maximal marginal relevance: returns the chosen, the first the most relevant.

    relevance: of each candidate, in any unit. similarity: of each pair, up to 1. diversity: 0 orders by relevance
    alone; 1 takes whatever is least like what was taken before.
    """
    left = list(relevance)
    highest = max(relevance.values(), default=1.0) or 1.0
    chosen: list[T] = []
    while left and len(chosen) < count:

        def weigh(item: T) -> float:
            likeness = max((similarity[item][other] for other in chosen), default=0.0)
            return (1 - diversity) * relevance[item] / highest - diversity * likeness

        best = max(left, key=weigh)
        left.remove(best)
        chosen.append(best)
    return chosen
