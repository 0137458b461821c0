"""Hashing of passwords with argon2, in a few threads so that it does not block the event loop.

Hashes that other systems made with bcrypt, scrypt or other parameters of argon2 are verified, too.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from baobab.runtime.fair_thread_pool import FairThreadPool

_MOST_ARGON2_KIB = 128 * 1024
_LEAST_BCRYPT, _MOST_BCRYPT = 4, 13
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_MOST_SCRYPT_BYTES = 128 * 2**20
_SCRYPT = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/]{1,128})\$([A-Za-z0-9+/]{16,128})")

hasher = PasswordHasher()
"""Hashes with argon2's recommended parameters. The tests put a cheaper one in its place."""
# One verification takes 64 MiB and several cores, so the number of threads bounds the memory of concurrent sign-ins.
# Tenants take turns, and each network of strangers is a tenant, so a flood of sign-ins does not delay others.
_pool = FairThreadPool("passwords", threads=2)


async def hash_password(password: str) -> str:
    """Returns the argon2 hash of a password. Raises Unavailable if too many passwords of this tenant are waiting."""
    with _pool.reserve_place():
        return await _pool.run_work(lambda: hasher.hash(password))


async def verify_password(encoded_hash: str | None, password: str) -> bool:
    """Returns whether a password matches a hash. Without a hash it returns False after the same amount of work.

    Raises Unavailable if too many passwords of this tenant are waiting.
    """
    with _pool.reserve_place():
        answer = await _pool.run_work(lambda: _verify(encoded_hash or _make_dummy_hash(), password))
    return answer and encoded_hash is not None


def is_outdated(encoded_hash: str) -> bool:
    """Returns whether a hash was made in another way, or with other parameters, than new ones."""
    return not encoded_hash.startswith("$argon2") or hasher.check_needs_rehash(encoded_hash)


def find_hash_problem(encoded_hash: str) -> str | None:
    """Returns why a hash from another system cannot be imported; None if it can. A hash states how much work it needs,
    so that is limited here, and not at a sign-in.
    """
    if encoded_hash.startswith("$argon2"):
        try:
            parameters = extract_parameters(encoded_hash)
        except (InvalidHashError, ValueError):
            return "it is no argon2 hash"
        costs = (parameters.memory_cost, parameters.time_cost, parameters.parallelism)
        too_costly = any(value > most for value, most in zip(costs, (_MOST_ARGON2_KIB, 10, 16), strict=True))
        return f"argon2 may take at most {_MOST_ARGON2_KIB} KiB, 10 passes and 16 lanes" if too_costly else None
    if encoded_hash.startswith("$2"):
        match = _BCRYPT.fullmatch(encoded_hash)
        if match is None:
            return "it is not a bcrypt hash"
        within = _LEAST_BCRYPT <= int(match[1]) <= _MOST_BCRYPT
        return None if within else f"the cost of bcrypt must be from {_LEAST_BCRYPT} to {_MOST_BCRYPT}"
    if encoded_hash.startswith("$scrypt$"):
        return "it is not a scrypt hash, or asks for more than 128 MiB" if _Scrypt.parse(encoded_hash) is None else None
    return "it is not a hash of bcrypt, scrypt or argon2"


def _verify(encoded_hash: str, password: str) -> bool:
    if encoded_hash.startswith("$2"):
        import bcrypt  # noqa: PLC0415 - only few installations have such hashes

        # bcrypt has never looked at more than 72 bytes.
        return bcrypt.checkpw(password.encode()[:72], encoded_hash.encode())
    if encoded_hash.startswith("$scrypt$"):
        scrypt = _Scrypt.parse(encoded_hash)
        return scrypt is not None and scrypt.verify(password)
    try:
        return hasher.verify(encoded_hash, password)
    except (VerificationError, InvalidHashError):
        return False


@dataclass(frozen=True, slots=True)
class _Scrypt:
    """A hash of the form `$scrypt$ln=15,r=8,p=1$SALT$HASH`, where ln is the base-2 logarithm of the cost."""

    cost_log2: int
    block_size: int
    parallelism: int
    salt: bytes
    digest: bytes

    @classmethod
    def parse(cls, encoded_hash: str) -> "_Scrypt | None":
        """Parses a hash; returns None if it is not such a hash or needs too much work."""
        match = _SCRYPT.fullmatch(encoded_hash)
        if match is None:
            return None
        cost_log2, block_size, parallelism = (int(match[index]) for index in (1, 2, 3))
        try:
            salt, digest = (base64.b64decode(match[index] + "==") for index in (4, 5))
        except binascii.Error:
            return None
        memory = 128 * block_size << cost_log2 if cost_log2 < 32 else _MOST_SCRYPT_BYTES + 1
        fits = cost_log2 and block_size and parallelism and memory * parallelism <= _MOST_SCRYPT_BYTES
        return cls(cost_log2, block_size, parallelism, salt, digest) if fits and len(digest) >= 16 else None

    def verify(self, password: str) -> bool:
        options = {"n": 1 << self.cost_log2, "r": self.block_size, "p": self.parallelism}
        computed_digest = hashlib.scrypt(
            password.encode(), salt=self.salt, **options, maxmem=2 * _MOST_SCRYPT_BYTES, dklen=len(self.digest)
        )
        return hmac.compare_digest(computed_digest, self.digest)


def _make_dummy_hash() -> str:
    """Returns a well-formed hash with the current parameters, of a random password."""
    salt, result = (
        base64.b64encode(os.urandom(size)).decode().rstrip("=") for size in (hasher.salt_len, hasher.hash_len)
    )
    return f"$argon2id$v=19$m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}${salt}${result}"
