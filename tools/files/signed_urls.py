"""Signed addresses of a file's bytes: whoever has one may do one thing with one file until it expires.

The signature covers the method, the app, the file and the time; for an upload also the content type and the length. The
key is derived from the installation's, so that every server of it can check an address without asking anything.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlencode

from baobab.storage.secrets import Vault
from baobab.tools.core.call import Call
from baobab.tools.files.errors import UrlExpired, UrlRefused

Method = Literal["PUT", "GET"]

UPLOAD_SECONDS, DOWNLOAD_SECONDS = 300, 3600
_PURPOSE = "addresses of files"


def build_upload_url(call: Call, app_id: str, file_id: str, content_type: str, size: int) -> str:
    parameters: dict[str, str | int] = {"type": content_type, "size": size}
    return _build_url(call, "PUT", app_id, file_id, UPLOAD_SECONDS, parameters)


def build_download_url(call: Call, app_id: str, file_id: str) -> str:
    return _build_url(call, "GET", app_id, file_id, DOWNLOAD_SECONDS, {})


def require_signature(call: Call, method: Method, arguments: Mapping[str, Any]) -> None:
    """Raises UrlRefused or UrlExpired. arguments: those of the request, not validated yet."""
    expires = arguments.get("expires")
    given, file_id = arguments.get("signature"), arguments.get("object_id")
    if not isinstance(expires, int) or not isinstance(given, str) or not isinstance(file_id, str):
        raise UrlRefused
    bound = {name: arguments[name] for name in ("type", "size") if arguments.get(name) is not None}
    text = _build_text(method, call.require_app().id, file_id, expires, bound)
    keys = call.services.vault.derive_each(_PURPOSE)
    if not any(hmac.compare_digest(_sign(key, text), given.encode(errors="replace")) for key in keys):
        raise UrlRefused
    if expires <= call.services.clock.time():
        raise UrlExpired


def _build_url(
    call: Call, method: Method, app_id: str, file_id: str, seconds: int, bound: Mapping[str, str | int]
) -> str:
    expires = int(call.services.clock.time()) + seconds
    vault: Vault = call.services.vault
    signature = _sign(vault.derive(_PURPOSE), _build_text(method, app_id, file_id, expires, bound)).decode()
    query = urlencode({**bound, "expires": expires, "signature": signature})
    return f"{call.services.options.base_url}/storage/{app_id}/content/{file_id}?{query}"


def _build_text(method: Method, app_id: str, file_id: str, expires: int, bound: Mapping[str, Any]) -> bytes:
    """Joins what is signed by a character that none of it has."""
    further = [f"{name}={bound[name]}" for name in sorted(bound)]
    return "\n".join((method, app_id, file_id, str(expires), *further)).encode(errors="replace")


def _sign(key: bytes, text: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key, text, hashlib.sha256)).rstrip(b"=")
