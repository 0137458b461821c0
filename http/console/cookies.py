"""The console's cookie, and the proof that a form comes from one of its pages."""

import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from baobab.tools.core.errors import Forbidden


class ForeignForm(Forbidden):
    code = "CONSOLE_FOREIGN_FORM"
    summary = "This form does not come from a page of this session."
    remediation = "Open the page again and send the form from there; nothing has been done."


class Cookies:
    """Sets and reads the cookie. Over https its name has the prefix `__Host-`, so that no other host can set it."""

    def __init__(self, base_url: str) -> None:
        address = urlsplit(base_url)
        self._secure = address.scheme == "https"
        self._name = "__Host-baobab_console" if self._secure else "baobab_console"
        self._path = "/" if self._secure else f"{address.path.rstrip('/')}/console"

    def read(self, request: Request) -> str:
        return request.cookies.get(self._name, "")

    def set(self, answer: Response, secret: str, expires_at: datetime, now: datetime) -> None:
        seconds = round((expires_at - now).total_seconds())
        answer.set_cookie(
            self._name, secret, max_age=seconds, path=self._path, secure=self._secure, httponly=True, samesite="lax"
        )

    def clear(self, answer: Response) -> None:
        answer.delete_cookie(self._name, path=self._path, secure=self._secure, httponly=True, samesite="lax")


def require_own_page(headers: Mapping[str, str]) -> None:
    """Refuses a form of another site. Every browser says where a form comes from; what says nothing is no browser."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        raise ForeignForm
    if site is not None and site != "same-origin":
        raise ForeignForm
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        raise ForeignForm


def require_csrf(given: str, expected: str) -> None:
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise ForeignForm
