"""Signed addresses: each allows one operation at one path until it expires, without a credential.

The signature covers the method, the path, the time, and for an upload what the caller binds beside these, such as a
content type and a length. The key is derived from the installation's, so that every server of it can check an address
without asking anything.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from pydantic import Field

from baobab.tools.core.call import Call
from baobab.tools.core.errors import UrlExpired, UrlRefused
from baobab.tools.core.secret import Secret

Method = Literal["PUT", "GET"]
Expires = Annotated[int, Field(ge=0, le=2**40, description="When the address expires, in seconds since 1970.")]
Signature = Annotated[str, Secret(100), Field(description="What makes the address valid.")]

_PURPOSE = "signed addresses"


def build_signed_url(
    call: Call, method: Method, path: str, seconds: int, *, base_url: str = "", **bound_values: str | int
) -> str:
    """Returns an address of this server that is valid for some seconds.

    base_url: of another host of this server than its own. bound_values: what the address says beside its path, none of
    which may be changed.
    """
    expires = int(call.services.clock.time()) + seconds
    signature = _sign(call.services.vault.derive(_PURPOSE), _build_text(method, path, expires, bound_values)).decode()
    query = urlencode({**bound_values, "expires": expires, "signature": signature})
    return f"{base_url or call.services.options.base_url}{path}?{query}"


def require_signature(call: Call, method: Method, path: str, arguments: Mapping[str, Any], *bound_names: str) -> None:
    """Raises UrlRefused or UrlExpired.

    arguments: those of the request, not validated yet. bound_names: of the arguments that the signature covers.
    """
    expires, sent_signature = arguments.get("expires"), arguments.get("signature")
    if not isinstance(expires, int) or not isinstance(sent_signature, str):
        raise UrlRefused
    bound_values = {name: arguments[name] for name in bound_names if arguments.get(name) is not None}
    text = _build_text(method, path, expires, bound_values)
    keys = call.services.vault.derive_each(_PURPOSE)
    if not any(hmac.compare_digest(_sign(key, text), sent_signature.encode(errors="replace")) for key in keys):
        raise UrlRefused
    if expires <= call.services.clock.time():
        raise UrlExpired


def _build_text(method: Method, path: str, expires: int, bound_values: Mapping[str, Any]) -> bytes:
    """Joins what is signed by a character that none of it has."""
    extra_parameters = [f"{name}={bound_values[name]}" for name in sorted(bound_values)]
    return "\n".join((method, path, str(expires), *extra_parameters)).encode(errors="replace")


def _sign(key: bytes, text: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key, text, hashlib.sha256)).rstrip(b"=")
