"""Combines rankings, chooses results that differ from each other, and measures how good a ranking is."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
_K = 60
"""The constant of reciprocal rank fusion: the larger it is, the less the top places count more than the others."""


def fuse_rankings(rankings: Sequence[Mapping[T, float]]) -> dict[T, float]:
    """Combines rankings by weighted reciprocal rank fusion. Returns all items with their scores, best first.

    rankings: the items of each ranking, best first, with their weights up to 1. An item's score is the sum of its
    weight / (60 + rank).
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, (item, weight) in enumerate(ranking.items(), 1):
            scores[item] = scores.get(item, 0.0) + weight / (_K + rank)
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def weigh_words(query_words: frozenset[str], texts: Mapping[T, str], power: int) -> dict[T, float]:
    """Returns the weight of each result of a word search beside a search by meaning: the share of the query's words
    that it has, to a power.

    query_words: the words of the query, in their indexed form. texts: the words of each text, separated by spaces, best
    first. A name or a number that occurs counts in full; a text that shares only one common word with the question
    hardly counts.
    """
    return {
        item: (len(query_words.intersection(words.split())) / len(query_words)) ** power
        for item, words in texts.items()
    }


def choose_diverse(
    relevance: Mapping[T, float], similarity: Mapping[T, Mapping[T, float]], count: int, diversity: float
) -> list[T]:
    """Chooses results by maximal marginal relevance. Returns the chosen items, the most relevant first.

    relevance: of each candidate, in any unit. similarity: of each pair, up to 1. diversity: with 0 relevance alone
    decides; with 1 each next item is the one least similar to those chosen before.
    """
    candidates = list(relevance)
    highest = max(relevance.values(), default=1.0) or 1.0
    diverse_items: list[T] = []
    while candidates and len(diverse_items) < count:

        def weigh(item: T) -> float:
            likeness = max((similarity[item][other] for other in diverse_items), default=0.0)
            return (1 - diversity) * relevance[item] / highest - diversity * likeness

        best = max(candidates, key=weigh)
        candidates.remove(best)
        diverse_items.append(best)
    return diverse_items


def measure_recall(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """Returns the share of the relevant items that were found."""
    return len(set(ranking) & set(relevant)) / len(set(relevant))


def measure_reciprocal_rank(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """Returns 1 divided by the rank of the first relevant item; 0 if there is none."""
    return next((1 / place for place, item in enumerate(ranking, 1) if item in relevant), 0.0)


def measure_ndcg(ranking: Sequence[str], relevant: Collection[str], depth: int) -> float:
    """Returns the normalised discounted cumulative gain of the first `depth` results, with a gain of 1 for each
    relevant item.
    """
    gain = sum(1 / math.log2(place + 1) for place, item in enumerate(ranking[:depth], 1) if item in relevant)
    best = sum(1 / math.log2(place + 1) for place in range(1, min(len(set(relevant)), depth) + 1))
    return gain / best
