"""How long the crash tests go on: once over for every run of the suite, more often where there is time (`make crash`).

BAOBAB_CRASH_ROUNDS=5 pytest tests/crash
"""

import os

_TIMES = int(os.environ.get("BAOBAB_CRASH_ROUNDS", "1"))
LONG = _TIMES > 1


def list_rounds(short: int, long: int | None = None) -> range:
    """The rounds of a test that makes `short` of them when nobody asks for more.

    long: how many it makes when somebody does; left out, so many times the short.
    """
    return range(long if LONG and long is not None else short * _TIMES)
