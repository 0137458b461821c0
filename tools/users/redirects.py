"""Checks the addresses to which a browser is sent with the tokens of a sign-in."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

from baobab.tools.core import Call, Text
from baobab.tools.core.redirects import is_listed

RedirectTo = Annotated[str, Text(2000, min_length=1)]


def is_redirect_allowed(call: Call, redirect_to: str) -> bool:
    """Returns whether tokens may be sent to this address: its origin is the app's, or on this machine."""
    # Our own page of the app takes tokens only in a browser that has left it for them.
    own_page = f"{call.services.options.base_url}/auth/{call.require_app().id}/approvals"
    is_plain = not any(character in redirect_to for character in "\\\r\n\t #")
    return (is_plain and redirect_to.partition("?")[0] == own_page) or is_listed(call, redirect_to, localhost=True)


def build_address(call: Call, redirect_to: str, answer: Mapping[str, Any]) -> str:
    """Returns where the browser goes after a sign-in: on with the tokens, or to our page for the second factor."""
    if "challenge" not in answer:
        return build_token_address(redirect_to, answer)
    query = urlencode({"challenge": answer["challenge"], "redirect_to": redirect_to})
    return f"{call.services.options.base_url}/auth/{call.require_app().id}/login-page?{query}"


def build_token_address(redirect_to: str, signed_in: Mapping[str, Any]) -> str:
    """Returns the address with the tokens in its query. Whoever sends a browser there says `no-referrer`."""
    tokens = {name: signed_in[name] for name in ("access_token", "refresh_token", "expires_in", "token_type")}
    joint = "&" if urlsplit(redirect_to).query else "?"
    return f"{redirect_to}{joint}{urlencode(tokens)}"
