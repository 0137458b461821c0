"""Secrets at rest: an envelope with AES-256-GCM that names its key, so that keys can be rotated."""

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
_NONCE_BYTES = 12
_VERSION = "v1"


class SecretUnreadable(Exception):
    """The text is not an envelope, belongs to another context, or was sealed with an unknown key."""


class Vault:
    """Seals and opens small secrets.

    The first key seals; every key can open, chosen by the key id in the envelope. The context (such as
    `apps.env:app_1`) is authenticated, so that a sealed value that was copied to another row does not open there.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a vault needs keys of {KEY_BYTES} bytes")
        self._ciphers = {key_id(key): AESGCM(_derive(key, "seal")) for key in keys}
        self._roots = tuple(keys)
        self.current = key_id(keys[0])

    def seal(self, secret: bytes, context: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        ciphertext = self._ciphers[self.current].encrypt(nonce, secret, context.encode())
        return ".".join((_VERSION, self.current, _text(nonce + ciphertext)))

    def open(self, envelope: str, context: str) -> bytes:
        try:
            version, key, body = envelope.split(".")
            raw = base64.urlsafe_b64decode(body)
            if version != _VERSION:
                raise SecretUnreadable("unknown version of a secret's envelope")
            return self._ciphers[key].decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode())
        except (ValueError, KeyError, binascii.Error, InvalidTag) as exc:
            raise SecretUnreadable("a secret does not open with the keys held here") from exc

    def is_current(self, envelope: str) -> bool:
        return envelope.startswith(f"{_VERSION}.{self.current}.")

    def derive(self, purpose: str) -> bytes:
        """Returns a 32-byte key for another use (signing, deterministic tokens), never for sealing.

        It is derived from the newest key, so a rotation makes everything invalid that was signed with it.
        """
        return _derive(self._roots[0], purpose)

    def derive_each(self, purpose: str) -> list[bytes]:
        """Returns a derived key for each key of the vault, newest first, so that older signatures can be verified
        too.
        """
        return [_derive(root, purpose) for root in self._roots]


def key_id(key: bytes) -> str:
    return hashlib.sha256(b"baobab key id" + key).hexdigest()[:8]


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def encode_key(key: bytes) -> str:
    return _text(key)


def decode_keys(text: str) -> list[bytes]:
    """Decodes keys: base64url, separated by commas or line breaks; the first is the current one. Raises ValueError."""
    words = text.replace(",", "\n").split()
    keys = [base64.urlsafe_b64decode(word) for word in words]
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise ValueError(f"expected base64url texts of {KEY_BYTES} bytes each")
    return keys


def load_or_create(path: Path) -> list[bytes]:
    """Returns the keys in a file that only its owner may read; creates it with one key if it does not exist."""
    if not path.exists():
        make_private(path, encode_key(new_key()) + "\n")
    return read_keys(path)


def make_private(path: Path, text: str) -> None:
    """Creates a file that only its owner may read, unless it exists.

    If two processes create it at once, both use the same content: the file is linked into place as a whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.urandom(8).hex()}")
    write_private(fresh, text)
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def load_or_create_token(path: Path) -> str:
    """Returns the token in a file that only its owner may read; creates one if it does not exist."""
    if not path.exists():
        make_private(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()


def read_keys(path: Path) -> list[bytes]:
    try:
        return decode_keys(path.read_text())
    except ValueError as exc:
        raise SecretUnreadable(f"{path} holds no keys; restore it from a backup") from exc


def write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def digest_token(token: str) -> str:
    """Returns the SHA-256 (hex) of a key or token. This is what the database stores, so that the server can recognise a
    token but never show it.
    """
    return hashlib.sha256(token.encode()).hexdigest()


@lru_cache(maxsize=256)
def _derive(key: bytes, purpose: str) -> bytes:
    # Kept: there are few purposes, and the keys themselves are in memory too.
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"baobab {purpose}".encode()).derive(key)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()
