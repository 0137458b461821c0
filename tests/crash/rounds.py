"""How long the crash tests go on: once over for every run of the suite, more often where there is time (`make crash`).

BAOBAB_CRASH_ROUNDS=5 pytest tests/crash
"""

import os

_TIMES = int(os.environ.get("BAOBAB_CRASH_ROUNDS", "1"))


def rounds(short: int) -> range:
    """The rounds of a test that makes `short` of them when nobody asks for more."""
    return range(short * _TIMES)
