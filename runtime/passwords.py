"""Hashing of passwords with argon2, in a few threads so that it does not block the event loop."""

import base64
import os

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from baobab.runtime.fair_thread_pool import FairThreadPool

_hasher = PasswordHasher()
# One verification takes 64 MiB and several cores, so the number of threads bounds the memory of concurrent sign-ins.
# Tenants take turns, and a stranger is one by their network: a flood of sign-ins delays nobody else's.
_pool = FairThreadPool("passwords", threads=2)


async def hash_password(password: str) -> str:
    """Returns the argon2 hash of a password. Raises Unavailable where this tenant has too many of them waiting."""
    with _pool.reserve_place():
        return await _pool.run_work(lambda: _hasher.hash(password))


async def verify_password(encoded: str | None, password: str) -> bool:
    """Whether this is the password. Without a hash to compare with it is not, after the same work.

    Raises Unavailable where this tenant has too many of them waiting.
    """
    with _pool.reserve_place():
        answer = await _pool.run_work(lambda: _verify(encoded or _nobodys, password))
    return answer and encoded is not None


def is_outdated(encoded: str) -> bool:
    """Whether the password was hashed with other parameters than today's."""
    return _hasher.check_needs_rehash(encoded)


def _verify(encoded: str, password: str) -> bool:
    try:
        return _hasher.verify(encoded, password)
    except (VerificationError, InvalidHashError):
        return False


def _dummy_hash() -> str:
    """A well-formed hash with today's parameters whose password nobody knows."""
    salt, result = (
        base64.b64encode(os.urandom(size)).decode().rstrip("=") for size in (_hasher.salt_len, _hasher.hash_len)
    )
    return f"$argon2id$v=19$m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}${salt}${result}"


_nobodys = _dummy_hash()
