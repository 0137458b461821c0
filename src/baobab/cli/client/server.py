"""The server that client commands call, and how they find its address and a credential."""

import contextlib
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from baobab import __version__
from baobab.cli.client.errors import ClientError
from baobab.cli.client.logins import Login, lock_logins, read_logins, store_login
from baobab.settings import CLIENT_APP, CLIENT_KEY, CLIENT_URL

_TIMEOUT_SECONDS = 120.0
_MOST_ANSWER = 64 * 2**20
_EARLY_SECONDS = 60
"""An access token is exchanged this long before it expires."""
_APP_ID = re.compile(r"app_[a-z0-9]{12}")
_HTTP_UNAUTHORIZED, _HTTP_ERROR = 401, 400


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: the credential would go with the request."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of a server."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def value(self) -> Any:
        """The body as JSON; None if there is none, or it is something else."""
        try:
            return json.loads(self.content) if self.content else None
        except ValueError:
            return None


class Unreachable(ClientError):
    """No answer came."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(
            f"{address} does not answer: {reason}. Check the address and whether the server runs.", "UNREACHABLE"
        )


def read_address(text: str) -> str:
    """Returns the address of a server without path and slash. Raises ClientError."""
    parts = urlsplit(text if "://" in text else f"https://{text}")
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ClientError(f"{text!r} is no address of a server. Give one such as https://baobab.example.com.")
    path = parts.path.rstrip("/").removesuffix("/mcp")
    if path or parts.query or parts.fragment:
        raise ClientError(
            f"{text!r} is the address of a page. Give that of the server: {parts.scheme}://{parts.netloc}"
        )
    return f"{parts.scheme}://{parts.netloc}".lower()


class Server:
    """A server with the credential that it is called with; None for a server that is called without."""

    def __init__(self, address: str, credential: str | None, *, login: Login | None = None) -> None:
        """login: where the credential was stored, if it can be refreshed."""
        self.address = address
        self._credential = credential
        self._login = login

    def call(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        """Makes a call with JSON, and returns what is answered. Raises ClientError if it is refused."""
        return self.send(method, path, body, query=query).value

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        may_fail: bool = False,
    ) -> Answer:
        """As `call`, but returns the whole answer. may_fail: whether a status of an error is returned, too."""
        with self.open_answer(method, path, body, query=query) as (status, headers, stream):
            content = _read(self.address, stream)
        answer = Answer(status, headers, content)
        if status >= _HTTP_ERROR and not may_fail:
            raise self.read_refusal(answer)
        return answer

    @contextlib.contextmanager
    def open_answer(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, str], IO[bytes]]]:
        """Yields the status, headers and body of an answer, as it comes. Raises ClientError."""
        values = {name: value for name, value in (query or {}).items() if value is not None}
        address = f"{self.address}{path}{'?' + urlencode(values) if values else ''}"
        content = None if body is None else json.dumps(body).encode()
        sent_headers = {"user-agent": f"baobab-cli/{__version__}", "accept": "application/json", **(headers or {})}
        if content is not None:
            sent_headers["content-type"] = "application/json"
        if self._login is not None:
            self._credential = _refresh(self.address, self._login)
        if self._credential is not None:
            sent_headers["authorization"] = f"Bearer {self._credential}"
        with _open(address, method, content, sent_headers, self.address) as answer_parts:
            yield answer_parts

    def put(self, address: str, content: bytes, content_type: str) -> None:
        """Sends bytes to an address that the server has signed, without the credential. Raises ClientError."""
        with _open(address, "PUT", content, {"content-type": content_type}, address.partition("?")[0]) as answer_parts:
            status, headers, stream = answer_parts
            answer = Answer(status, headers, _read(self.address, stream))
        if answer.status >= _HTTP_ERROR:
            raise self.read_refusal(answer)

    def read_refusal(self, answer: Answer) -> ClientError:
        """Returns the error that a server has answered with, as one sentence or two."""
        value = answer.value
        error = value.get("error") if isinstance(value, dict) else None
        if not isinstance(error, dict):
            text = error if isinstance(error, str) else f"{self.address} answered with the status {answer.status}."
            remedy = value.get("remediation") or value.get("message") or "" if isinstance(value, dict) else ""
            return ClientError(
                f"{text} {remedy}".strip(), str((value or {}).get("code", "REFUSED")) if value else "REFUSED"
            )
        message = " ".join(str(error[name]) for name in ("message", "remediation") if error.get(name))
        if answer.status == _HTTP_UNAUTHORIZED:
            message += f" The credential was sent to {self.address}; `baobab login {self.address}` stores a new one."
        details = error.get("details")
        return ClientError(message, str(error.get("code", "REFUSED")), details if isinstance(details, dict) else None)


def find_server() -> Server:
    """Returns the server of BAOBAB_URL and BAOBAB_KEY, else of a login. Raises ClientError if there is neither.

    A stored credential goes only to the server that it was stored for; a key in BAOBAB_KEY only to BAOBAB_URL.
    """
    address_text, key = os.environ.get(CLIENT_URL), os.environ.get(CLIENT_KEY)
    if key and not address_text:
        raise ClientError(f"{CLIENT_KEY} is set, and {CLIENT_URL} is not. Set it to the address of the key's server.")
    current, logins = read_logins()
    address = read_address(address_text) if address_text else current
    if address is None:
        raise ClientError(f"No server is known. Run `baobab login URL`, or set {CLIENT_URL} and {CLIENT_KEY}.")
    if key:
        return Server(address, key.strip())
    login = logins.get(address)
    if login is None:
        raise ClientError(
            f"There is no credential for {address}. Run `baobab login {address}`, or set {CLIENT_KEY} to an API key."
        )
    return Server(address, login.get("key"), login=None if "key" in login else login)


def find_app(server: Server, app: str | None) -> str:
    """Returns the id of an app that is named by its id, name or subdomain. Raises ClientError."""
    app = app or os.environ.get(CLIENT_APP)
    if not app:
        raise ClientError(f"Name the app: --app APP, by its id or its name, or set {CLIENT_APP}.", "APP_MISSING")
    if _APP_ID.fullmatch(app):
        return app
    cursor, matching_ids = None, []
    while True:
        page = server.call("GET", "/apps", query={"cursor": cursor})
        matching_ids += [str(each["id"]) for each in page["apps"] if app in (each["name"], each.get("subdomain"))]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    if len(matching_ids) == 1:
        return matching_ids[0]
    if matching_ids:
        raise ClientError(f"{len(matching_ids)} apps are called {app!r}: {', '.join(matching_ids)}. Name it by its id.")
    raise ClientError(
        f"{server.address} has no app {app!r} that you may use. `baobab apps` lists them.", "APP_NOT_FOUND"
    )


def write_segment(text: str) -> str:
    """Returns a text as one segment of a path."""
    return quote(text, safe="")


def _refresh(address: str, login: Login) -> str:
    """Returns an access token that is valid for a while. Raises ClientError if the access has ended."""
    if login["expires_at"] - _EARLY_SECONDS > time.time():
        return login["access_token"]
    with lock_logins():
        # Another command may have done it meanwhile.
        stored_login = read_logins()[1].get(address)
        if stored_login is None or "refresh_token" not in stored_login:
            raise ClientError(f"You were logged out of {address}. Run `baobab login {address}`.")
        if stored_login["expires_at"] - _EARLY_SECONDS <= time.time():
            form = {"grant_type": "refresh_token", "refresh_token": stored_login["refresh_token"]}
            answer = post_form(address, "/oauth/token", {**form, "client_id": stored_login["client_id"]})
            if answer.status >= _HTTP_ERROR:
                raise ClientError(
                    f"The access to {address} has ended: {read_oauth_error(answer)} Run `baobab login {address}`.",
                    "LOGIN_ENDED",
                )
            stored_login = read_tokens(answer, stored_login["client_id"])
            store_login(address, stored_login, is_current=False)
    login.update(stored_login)
    return login["access_token"]


def read_tokens(answer: Answer, client_id: str) -> Login:
    """Returns what is stored of an answer of the token endpoint. Raises ClientError."""
    value = answer.value
    try:
        return {
            "client_id": client_id,
            "access_token": str(value["access_token"]),
            "refresh_token": str(value["refresh_token"]),
            "expires_at": time.time() + float(value["expires_in"]),
        }
    except (KeyError, TypeError, ValueError) as exc:
        raise ClientError("The server answered with something that is no token. Is it a Baobab?") from exc


def post_form(address: str, path: str, form: Mapping[str, str]) -> Answer:
    """Posts a form, as OAuth wants it. Raises Unreachable."""
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    with _open(f"{address}{path}", "POST", urlencode(form).encode(), headers, address) as (status, fields, stream):
        return Answer(status, fields, _read(address, stream))


def read_oauth_error(answer: Answer) -> str:
    value = answer.value
    if isinstance(value, dict):
        return str(value.get("error_description") or value.get("error") or f"status {answer.status}.")
    return f"the server answered with the status {answer.status}."


@contextlib.contextmanager
def _open(
    address: str, method: str, content: bytes | None, headers: Mapping[str, str], shown_address: str
) -> Iterator[tuple[int, Mapping[str, str], IO[bytes]]]:
    """Yields an answer, whatever its status. Raises Unreachable. shown_address: without what nobody may see."""
    request = urllib.request.Request(address, content, dict(headers), method=method)  # noqa: S310 - read_address
    try:
        response: Any = _opener.open(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        response = error
    except urllib.error.URLError as exc:
        reason = exc.reason
        text = "its certificate is not trusted" if isinstance(reason, ssl.SSLCertVerificationError) else reason
        raise Unreachable(shown_address, text) from exc
    except (OSError, ValueError, HTTPException) as exc:
        raise Unreachable(shown_address, exc) from exc
    with response:
        if response.status in (301, 302, 303, 307, 308):
            place = response.headers.get("location", "")
            raise ClientError(
                f"{shown_address} leads to {place[:200]!r}, which is not followed. Use that address instead."
            )
        yield response.status, response.headers, response


def _read(address: str, stream: IO[bytes]) -> bytes:
    try:
        content = stream.read(_MOST_ANSWER + 1)
    except (OSError, HTTPException) as exc:
        raise Unreachable(address, exc) from exc
    if len(content) > _MOST_ANSWER:
        raise ClientError(f"{address} answered with more than {_MOST_ANSWER} bytes.")
    return content
