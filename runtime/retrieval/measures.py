"""Measures of a ranking against what should have been found."""

import math
from collections.abc import Collection, Sequence


def measure_recall(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """Returns the part of what is relevant that was found."""
    return len(set(ranking) & set(relevant)) / len(set(relevant))


def measure_reciprocal_rank(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """Returns 1 divided by the place of the first relevant one; 0 if there is none."""
    return next((1 / place for place, item in enumerate(ranking, 1) if item in relevant), 0.0)


def measure_ndcg(ranking: Sequence[str], relevant: Collection[str], depth: int) -> float:
    """Returns the normalised discounted cumulative gain at a depth, with a gain of 1 for each relevant one."""
    gain = sum(1 / math.log2(place + 1) for place, item in enumerate(ranking[:depth], 1) if item in relevant)
    best = sum(1 / math.log2(place + 1) for place in range(1, min(len(set(relevant)), depth) + 1))
    return gain / best
