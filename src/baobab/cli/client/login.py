"""`baobab login` and `logout`: access for this machine, by OAuth in a browser or by an API key."""

import base64
import hashlib
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import click

from baobab.cli.client.errors import ClientError
from baobab.cli.client.logins import Login, lock_logins, read_logins, store_login
from baobab.cli.client.server import Server, post_form, read_address, read_oauth_error, read_tokens

_SCOPE = "mcp"
"""What the account may do in the organisation that is chosen on the page, minus what is switched off there."""
_WAIT_SECONDS = 600.0
"""How long the server's page of consent is valid."""
_HTTP_ERROR = 400
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PAGE = b"""<!doctype html><meta charset="utf-8"><title>Baobab</title>
<p style="font: 1.2rem system-ui; margin: 4rem">%s You can close this page and go back to the terminal.</p>"""


@click.command()
@click.argument("url")
@click.option("--key", "by_key", is_flag=True, help="Without a browser: asks for an API key, or reads it from a pipe.")
@click.option("--no-browser", is_flag=True, help="Only print the link, which you open in a browser on this machine.")
def login(url: str, *, by_key: bool, no_browser: bool) -> None:
    """Log in to the server at URL, for the commands that call it.

    Example: `baobab login https://baobab.example.com`

    Your browser opens a page of the server on which you sign in and choose what this machine may do: never more than
    you. To deploy functions and sites, choose there that it must ask a person before "Nothing", and no other limit:
    the default asks before destructive calls, which is enough to read, list and follow logs. Access is renewed as you
    use it, ends 30 days after the last use, and is revoked by `baobab logout` or at /console/programs of the server.
    """
    address = read_address(url)
    if address.startswith("http:") and urlsplit(address).hostname not in _LOOPBACK:
        click.echo(f"Warning: {address} is not encrypted. Whoever is between reads what you send, also keys.", err=True)
    new_login: Login = {"key": _read_key()} if by_key else _authorize(address, opens_browser=not no_browser)
    credential = new_login.get("key") or new_login["access_token"]
    who = _describe_owner(Server(address, credential))
    with lock_logins():
        store_login(address, new_login)
    click.echo(f"Logged in to {address} {who}.")


@click.command()
@click.argument("url", required=False)
def logout(url: str | None) -> None:
    """Forget the access to the server at [URL], or to the one that was logged in to last, and revoke what OAuth gave.

    A key that was given with `--key` is forgotten here and stays valid: revoke it where it was made.
    """
    with lock_logins():
        current, logins = read_logins()
        address = read_address(url) if url else current
        if address is None or address not in logins:
            raise ClientError(f"There is no login to {address}." if address else "There is no login to end.")
        old_login = logins[address]
        store_login(address, None)
    if "key" in old_login:
        click.echo(f"Logged out of {address}. The key itself stays valid; `DELETE /api-keys/ID` revokes it.")
        return
    form = {"token": old_login["refresh_token"], "client_id": old_login["client_id"]}
    try:
        answer = post_form(address, "/oauth/revoke", form)
        reason = read_oauth_error(answer) if answer.status >= _HTTP_ERROR else None
    except ClientError as exc:
        reason = exc.message
    if reason is not None:
        raise ClientError(
            f"The login is forgotten here, but it was not revoked: {reason} Revoke it at {address}/console/programs."
        )
    click.echo(f"Logged out of {address}.")


def _read_key() -> str:
    key = (
        str(click.prompt("API key (not shown)", hide_input=True, err=True)) if sys.stdin.isatty() else sys.stdin.read()
    )
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ClientError("That is no API key. A key begins with bb_sk_; `POST /api-keys` or the console creates one.")
    return key


def _describe_owner(server: Server) -> str:
    """Returns as whom the credential acts. Raises ClientError if the server does not take it."""
    answer = server.send("GET", "/platform/me", may_fail=True)
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise server.read_refusal(answer)
    if answer.status >= _HTTP_ERROR:
        # A key of an app, or with limits, does not read the account, and may be all that is wanted.
        return "with a key"
    organizations = ", ".join(str(each["name"]) for each in answer.value["organizations"])
    return f"as {answer.value['user']['email']} ({organizations})"


def _authorize(address: str, *, opens_browser: bool) -> Login:
    """Has a person give this machine access on a page of the server, which leads back to a port of this machine.

    Raises ClientError.
    """
    endpoints = _find_endpoints(address)
    with _Callback() as callback:
        redirect = f"http://127.0.0.1:{callback.server_port}/callback"
        client_id = _register(address, endpoints["registration_endpoint"], redirect)
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect,
            "scope": _SCOPE,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        link = f"{endpoints['authorization_endpoint']}?{urlencode(query)}"
        click.echo(f"Decide on this page what this machine may do:\n\n  {link}\n", err=True)
        if opens_browser:
            click.launch(link)
        answer = callback.wait(state)
    if answer.get("iss", endpoints["issuer"]) != endpoints["issuer"]:
        raise ClientError("Another server than the one that was asked has answered. Nothing was stored.")
    if "code" not in answer:
        raise ClientError(
            f"No access was given: {answer.get('error_description') or answer.get('error')}", "LOGIN_DENIED"
        )
    form = {"grant_type": "authorization_code", "code": answer["code"], "redirect_uri": redirect}
    tokens = post_form(address, "/oauth/token", {**form, "client_id": client_id, "code_verifier": verifier})
    if tokens.status >= _HTTP_ERROR:
        raise ClientError(f"The code was not exchanged: {read_oauth_error(tokens)} Run `baobab login {address}` again.")
    return read_tokens(tokens, client_id)


def _find_endpoints(address: str) -> Mapping[str, str]:
    """Returns the addresses of the server's OAuth. Raises ClientError if they lead elsewhere, as credentials would."""
    metadata = Server(address, None).call("GET", "/.well-known/oauth-authorization-server")
    names = ("issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint")
    if not isinstance(metadata, dict) or any(not isinstance(metadata.get(name), str) for name in names):
        raise ClientError(f"{address} does not offer to log in. Is it a Baobab?")
    for name in names:
        parts = urlsplit(metadata[name])
        if f"{parts.scheme}://{parts.netloc}" != address:
            raise ClientError(f"{address} calls itself {metadata['issuer']}. Run `baobab login {metadata['issuer']}`.")
    return metadata


def _register(address: str, endpoint: str, redirect: str) -> str:
    name = f"Baobab command line on {socket.gethostname()[:60]}"
    body = {"client_name": name, "redirect_uris": [redirect], "token_endpoint_auth_method": "none"}
    answer = Server(address, None).send("POST", urlsplit(endpoint).path, body, may_fail=True)
    if answer.status >= _HTTP_ERROR or not isinstance(answer.value, dict) or "client_id" not in answer.value:
        raise ClientError(f"The server does not take this machine as a client: {read_oauth_error(answer)}")
    return str(answer.value["client_id"])


class _Callback(HTTPServer):
    """Waits on loopback for the browser to come back."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = ""
        self.answer: dict[str, str] | None = None

    def wait(self, state: str) -> dict[str, str]:
        """Returns the parameters of the request that carries the state. Raises ClientError if none comes."""
        self.state = state
        deadline = time.monotonic() + _WAIT_SECONDS
        while self.answer is None:
            self.timeout = deadline - time.monotonic()
            if self.timeout <= 0:
                raise ClientError("Nobody decided within ten minutes. Run the command again.", "LOGIN_EXPIRED")
            self.handle_request()
        return self.answer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever connects and says nothing sensible is not answered."""


class _Handler(BaseHTTPRequestHandler):
    server: _Callback
    timeout = 5
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        parameters = dict(parse_qsl(parts.query))
        is_ours = parts.path == "/callback" and secrets.compare_digest(
            parameters.get("state", "").encode(), self.server.state.encode()
        )
        if is_ours and self.server.answer is None:
            self.server.answer = parameters
        text = b"This machine has access." if "code" in parameters else b"This machine was given no access."
        self.send_response(200 if is_ours else 404)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("referrer-policy", "no-referrer")
        self.end_headers()
        self.wfile.write(_PAGE % (text if is_ours else b"This is not the page that was waited for."))

    def log_message(self, *_: Any) -> None:
        """The address holds the code, which is nobody's business."""
