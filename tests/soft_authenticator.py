"""A passkey in software: answers the two ceremonies as a browser's authenticator would (WebAuthn)."""

import base64
import hashlib
import json
import secrets
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

_PRESENT, _VERIFIED, _ATTESTED = 0x01, 0x04, 0x40


class SoftAuthenticator:
    """Holds one passkey. verifies: whether it asks its person for a PIN."""

    def __init__(self, origin: str, *, verifies: bool = True) -> None:
        self.origin = origin
        self.sign_count = 0
        self._flags = _PRESENT | (_VERIFIED if verifies else 0)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._id = secrets.token_bytes(16)
        self._owner = ""

    def create(self, options: Any) -> dict[str, Any]:
        """Returns the answer of `navigator.credentials.create`, as JSON."""
        self._owner = options["user"]["id"]
        numbers = self._key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (numbers.x, numbers.y))
        public = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        credential_data = b"\0" * 16 + len(self._id).to_bytes(2, "big") + self._id + public
        data = self._build_data(options["rp"]["id"], _ATTESTED) + credential_data
        response = {"attestationObject": encode(cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data}))}
        return self._answer("webauthn.create", options, {**response, "transports": ["internal"]})

    def get(self, options: Any) -> dict[str, Any]:
        """Returns the answer of `navigator.credentials.get`, as JSON."""
        self.sign_count += 1
        data = self._build_data(options["rpId"], 0)
        client_data = self._build_client_data("webauthn.get", options)
        signature = self._key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        response = {"authenticatorData": encode(data), "signature": encode(signature), "userHandle": self._owner}
        return self._answer("webauthn.get", options, response)

    def _build_data(self, rp_id: str, further: int) -> bytes:
        flags = (self._flags | further).to_bytes(1, "big")
        return hashlib.sha256(rp_id.encode()).digest() + flags + self.sign_count.to_bytes(4, "big")

    def _build_client_data(self, kind: str, options: Any) -> bytes:
        client_data = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps(client_data).encode()

    def _answer(self, kind: str, options: Any, response: dict[str, Any]) -> dict[str, Any]:
        client_data = encode(self._build_client_data(kind, options))
        credential = {"id": encode(self._id), "rawId": encode(self._id), "type": "public-key"}
        return {**credential, "clientExtensionResults": {}, "response": {**response, "clientDataJSON": client_data}}


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
