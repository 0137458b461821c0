"""How much is measured: enough for figures, or as little as shows that a section still works (`--smoke`)."""

import sys

SMOKE = "--smoke"
IS_SMOKE = SMOKE in sys.argv


def size(full: int, smoke: int = 1) -> int:
    """Returns how many rounds, calls or rows it is. smoke: the same for a run whose figures nobody reads."""
    return smoke if IS_SMOKE else full
