"""Password rules, and argon2 hashing in a small thread pool so that it does not block the event loop."""

import asyncio
import base64
import os
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from baobab.tools.accounts.errors import WeakPassword

LONGEST = 256
_SHORTEST = 8

_hasher = PasswordHasher()
# One verification takes 64 MiB and several cores, so the size of the pool bounds the memory of concurrent sign-ins.
_pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="passwords")


def check(password: str) -> None:
    """Raises WeakPassword with the rules that the password breaks."""
    rules = {
        f"at least {_SHORTEST} characters": len(password) >= _SHORTEST,
        "an uppercase letter": any(c.isupper() for c in password),
        "a lowercase letter": any(c.islower() for c in password),
        "a digit": any(c.isdigit() for c in password),
        "a special character": any(not c.isalnum() for c in password),
    }
    broken = [rule for rule, kept in rules.items() if not kept]
    if broken:
        raise WeakPassword(f"The password needs {', '.join(broken)}.", details={"rules": broken})


async def encode(password: str) -> str:
    """Returns the argon2 hash of a password."""
    return await asyncio.get_running_loop().run_in_executor(_pool, _hasher.hash, password)


async def matches(encoded: str | None, password: str) -> bool:
    """Whether this is the password. Without a hash to compare with it is not, after the same work."""
    answer = await asyncio.get_running_loop().run_in_executor(_pool, _verify, encoded or _nobodys, password)
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
