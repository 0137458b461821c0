"""Redirect addresses: which ones are allowed, and how the answer is added to one."""

import re
from urllib.parse import SplitResult, urlencode, urlsplit

from baobab.runtime.oauth.errors import RedirectRefused

LONGEST = 2000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Programs whose scheme has no dot, although RFC 8252 (7.1) asks for one.
_EDITORS = frozenset(
    ["cursor", "jetbrains", "kiro", "trae", "vscode", "vscode-insiders", "vscodium", "windsurf", "zed"]
)
_TEXT = re.compile(r"[!#-;=?-\[\]_a-z~]+")


def check_redirect(uri: str) -> str:
    """Returns the address itself. Raises RedirectRefused if it is not allowed."""
    reason = _refusal(uri)
    if reason:
        raise RedirectRefused(reason)
    return uri


def is_same_redirect(registered_address: str, requested_address: str) -> bool:
    """Returns whether an address is the registered one; http on loopback may have any port (RFC 8252, 7.3)."""
    if _refusal(requested_address):
        return False
    own_parts, parts = urlsplit(registered_address), urlsplit(requested_address)
    if own_parts.scheme == "http":
        return _apart(own_parts, own_parts.hostname) == _apart(parts, parts.hostname)
    return _apart(own_parts, own_parts.netloc.lower()) == _apart(parts, parts.netloc.lower())


def display_host(uri: str) -> str:
    """Returns where an address leads, in a form that a person can judge: its host, or the scheme of a local program."""
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def answer(uri: str, **parameters: str | None) -> str:
    """Returns the redirect address with the answer's parameters in its query."""
    present = {name: value for name, value in parameters.items() if value is not None}
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(present)}"


def _refusal(uri: str) -> str | None:
    if len(uri) > LONGEST or not _TEXT.fullmatch(uri) or "#" in uri:
        return f"A redirect address has at most {LONGEST} plain characters and no fragment."
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return "A redirect address must be a URL."
    if "@" in parts.netloc:
        return "A redirect address must not hold a user name."
    match parts.scheme:
        case "https":
            is_allowed = bool(parts.hostname)
        case "http":
            is_allowed = parts.hostname in _LOOPBACK
        case scheme:
            is_allowed = scheme in _EDITORS or "." in scheme
    return None if is_allowed else "A redirect address is https, http on this machine, or a program's private scheme."


def _apart(parts: SplitResult, host: str | None) -> tuple[str, str | None, str, str]:
    return parts.scheme, host, parts.path or "/", parts.query
