"""Measures of how well a ranking matches the expected results."""

import math
from collections.abc import Collection, Sequence


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
