"""Refresh tokens: each names its session and its number in it, and proves both.

No token is stored, not even as a digest: the session's row says which number is good. The proof is made with a key of
the vault, so that the rows alone let nobody in; an older key of the vault still verifies.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from uuid import UUID

from baobab.storage.secrets import Vault
from baobab.tools.users.errors import WrongRefreshToken

PREFIX = "bb_ur_"
_SESSION, _NUMBER, _PROOF = 16, 4, 20


@dataclass(frozen=True, slots=True)
class RefreshToken:
    """The contents of a token. generation: how many tokens of the session came before it."""

    session_id: str
    generation: int

    def encode(self, vault: Vault, app_id: str) -> str:
        body = self._body()
        return PREFIX + base64.urlsafe_b64encode(body + _prove(vault.derive(_PURPOSE), app_id, body)).decode()

    @classmethod
    def decode(cls, vault: Vault, app_id: str, token: str) -> "RefreshToken":
        """Reads a token that was made for this app. Raises WrongRefreshToken for anything else."""
        try:
            raw = base64.b64decode(token.removeprefix(PREFIX), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error) as exc:
            raise WrongRefreshToken from exc
        body, proof = raw[: _SESSION + _NUMBER], raw[_SESSION + _NUMBER :]
        keys = vault.derive_each(_PURPOSE)
        if len(raw) != _SESSION + _NUMBER + _PROOF or not token.startswith(PREFIX):
            raise WrongRefreshToken
        if not any(hmac.compare_digest(proof, _prove(key, app_id, body)) for key in keys):
            raise WrongRefreshToken
        return cls(str(UUID(bytes=body[:_SESSION])), int.from_bytes(body[_SESSION:], "big"))

    def _body(self) -> bytes:
        return UUID(self.session_id).bytes + self.generation.to_bytes(_NUMBER, "big")


_PURPOSE = "user refresh token"


def _prove(key: bytes, app_id: str, body: bytes) -> bytes:
    return hmac.new(key, app_id.encode() + b"\0" + body, hashlib.sha256).digest()[:_PROOF]
