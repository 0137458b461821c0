"""Web push: messages that only the browser can read (RFC 8291), from a sender that it knows (RFC 8292)."""

import base64
import os
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from joserfc import jwt
from joserfc.jwk import ECKey
from sqlalchemy import select

from baobab.storage.sql.tables import build_upsert
from baobab.tools.approvals.notices.tables import push_identities
from baobab.tools.core import Services

_ID = "vapid"
_RECORD = 4096
_TOKEN_LIFETIME = timedelta(hours=12)


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Raises ValueError for what is no base64url."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def check_subscription(p256dh: str, auth: str) -> None:
    """Raises ValueError for keys that are not a browser's."""
    ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(p256dh))
    if len(decode(auth)) != 16:
        raise ValueError("the secret of a subscription has 16 bytes")


def encrypt(text: bytes, p256dh: str, auth: str) -> bytes:
    """Encrypts a message for one browser, as one record of `aes128gcm`. text: at most 3900 bytes."""
    receiver, sender_key, salt = decode(p256dh), ec.generate_private_key(ec.SECP256R1()), os.urandom(16)
    shared_secret = sender_key.exchange(
        ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), receiver)
    )
    sender = sender_key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    secret = _derive(decode(auth), shared_secret, b"WebPush: info\0" + receiver + sender, 32)
    key = _derive(salt, secret, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, secret, b"Content-Encoding: nonce\0", 12)
    header = salt + _RECORD.to_bytes(4, "big") + bytes([len(sender)]) + sender
    # The delimiter 2 marks the last record.
    return header + AESGCM(key).encrypt(nonce, text + b"\2", None)


def _derive(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


class PushSender:
    """The key pair of this installation; it is made when it is first needed, once for all processes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._key: ec.EllipticCurvePrivateKey | None = None

    async def public_key(self) -> str:
        """Returns the key that a browser subscribes with (`applicationServerKey`)."""
        key = await self._load()
        return encode(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))

    async def build_authorization(self, endpoint: str, now: datetime) -> str:
        """Returns the header that says who sends, for one push service."""
        key, parts = await self._load(), urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int((now + _TOKEN_LIFETIME).timestamp()),
            "sub": self._services.options.base_url,
        }
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        token = jwt.encode({"alg": "ES256", "typ": "JWT"}, claims, ECKey.import_key(pem), algorithms=["ES256"])
        return f"vapid t={token}, k={await self.public_key()}"

    async def _load(self) -> ec.EllipticCurvePrivateKey:
        if self._key is None:
            number = await self._read() or await self._create()
            self._key = ec.derive_private_key(number, ec.SECP256R1())
        return self._key

    async def _read(self) -> int | None:
        query = select(push_identities.c.private_key).where(push_identities.c.id == _ID)
        async with self._services.database.reading() as connection:
            sealed_key = (await connection.execute(query)).scalar()
        return None if sealed_key is None else int.from_bytes(self._services.vault.open(sealed_key, _CONTEXT), "big")

    async def _create(self) -> int:
        number = ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value
        sealed_key = self._services.vault.seal(number.to_bytes(32, "big"), _CONTEXT)
        row = {"id": _ID, "private_key": sealed_key, "created_at": self._services.clock.now()}
        async with self._services.database.writing(lock=None) as connection:
            # The pair of the process that inserts first is used by all.
            inserting = build_upsert(self._services.database.dialect, push_identities).on_conflict_do_nothing()
            await connection.execute(inserting, row)
        stored_key = await self._read()
        assert stored_key is not None
        return stored_key


_CONTEXT = f"{push_identities.name}.private_key:{_ID}"
