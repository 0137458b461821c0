"""Signed tokens (JWS) and the public keys that verify them (JWK): the one place where a signature is judged."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from joserfc import jws
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import ECKey, KeySet, RSAKey

_KINDS: Mapping[str, tuple[type[RSAKey | ECKey], str]] = {"RSA": (RSAKey, "RS256"), "EC": (ECKey, "ES256")}
_LEAST_RSA_BITS = 2048


class BadToken(Exception):
    """A token that none of the keys has signed, or that says nothing which can be read."""


class UnknownKey(BadToken):
    """A token that names a key which is not among them."""


def read_keys(document: Any) -> KeySet | None:
    """Returns the keys of a JWKS that may verify RS256 or ES256; None if there are none.

    One by one: a key of a kind that is not known, or a weak one, must not spoil the others.
    """
    keys_document = document.get("keys") if isinstance(document, dict) else None
    keys: list[Any] = []
    for raw_key in keys_document if isinstance(keys_document, list) else []:
        key = _read_key(raw_key) if isinstance(raw_key, dict) else None
        if key is not None:
            keys.append(key)
    return KeySet(keys) if keys else None


def _read_key(key: dict[str, Any]) -> RSAKey | ECKey | None:
    kind, algorithm = _KINDS.get(str(key.get("kty")), (None, ""))
    operations = key.get("key_ops", ["verify"])
    is_for_signatures = key.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    if kind is None or not is_for_signatures or key.get("alg", algorithm) != algorithm:
        return None
    if kind is ECKey and key.get("crv") != "P-256":
        return None
    try:
        if kind is RSAKey and _read_number(key["n"]).bit_length() < _LEAST_RSA_BITS:
            return None
        return kind.import_key(key)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def _read_number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


def verify_signature(token: str, keys: KeySet, algorithms: Sequence[str]) -> tuple[Mapping[str, Any], bytes]:
    """Returns the header and the payload of a token that one of the keys has signed.

    Raises BadToken, and UnknownKey if the token names another key.
    """
    try:
        signature = jws.deserialize_compact(token, keys, algorithms=list(algorithms))
    except InvalidKeyIdError as exc:
        raise UnknownKey from exc
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise BadToken from exc
    # No critical extension is known here, so a token that names one is refused, even an empty list of them.
    if "crit" in signature.protected:
        raise BadToken
    return signature.protected, signature.payload


def read_claims(token: str, keys: KeySet, algorithms: Sequence[str]) -> dict[str, Any]:
    """Returns the claims of a token that one of the keys has signed. Raises BadToken and UnknownKey."""
    _, payload = verify_signature(token, keys, algorithms)
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError) as exc:
        raise BadToken from exc
    if not isinstance(claims, dict):
        raise BadToken
    return claims
