"""Spares the suite the arithmetic of secrets: a password takes a quarter of a second of a processor, a key a tenth.

Servers that a test starts as a process of their own pay for both.
"""

import itertools
from collections.abc import Callable
from functools import cache

import pytest
from argon2 import PasswordHasher
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from baobab.runtime import passwords
from baobab.tools.core.auth import signing

REAL_HASHER = passwords.hasher
"""What servers hash passwords with."""
_KEYS = 24
"""More than one installation of a test has apps whose users sign in: no two of these have the same key."""


def make_cheap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passwords, "hasher", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    patch.setattr(signing, "make_rsa_key", _take_turns(signing.make_rsa_key))


def _take_turns(make_rsa_key: Callable[[], RSAPrivateKey]) -> Callable[[], RSAPrivateKey]:
    """Gives each of a few keys in its turn; a key is made when its turn comes for the first time."""
    turns = itertools.cycle(range(_KEYS))
    find_key = cache(lambda turn: make_rsa_key())
    return lambda: find_key(next(turns))
