"""The console's cookie, and the proof that a form comes from one of its pages."""

import hmac
from datetime import datetime
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from baobab.http.forms import ForeignForm


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


def require_csrf(given: str, expected: str) -> None:
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise ForeignForm
