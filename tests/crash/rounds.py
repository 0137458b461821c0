"""How often the crash tests repeat their rounds: a few times in every run of the suite, more where there is time.

BAOBAB_CRASH_ROUNDS=20 pytest tests/crash
"""

import os

_LEAST = int(os.environ.get("BAOBAB_CRASH_ROUNDS", "1"))
LONG = _LEAST > 1


def list_rounds(short: int, long: int | None = None) -> range:
    """The rounds of a test: `short` of them, or as many as are asked for if that is more.

    long: the least that the test makes when more than one are asked for.
    """
    return range(max(short, _LEAST, long if LONG and long is not None else 0))
