"""What `baobab login` stores: for each server a key or the tokens of OAuth, in a file that only you can read."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import click

from baobab.cli.client.errors import ClientError


class Login(TypedDict, total=False):
    """One server's credential. `key` with `--key`; else the tokens, and the client that they were given to.

    expires_at: seconds since 1970 after which `access_token` must be exchanged.
    """

    key: str
    client_id: str
    access_token: str
    refresh_token: str
    expires_at: float


def find_folder() -> Path:
    """Returns the user's folder for this program, such as `~/.config/baobab`."""
    return Path(click.get_app_dir("baobab"))


def find_file() -> Path:
    return find_folder() / "logins.json"


def read_logins() -> tuple[str | None, dict[str, Login]]:
    """Returns the server that was logged in to last, and the credentials by server. Raises ClientError."""
    file = find_file()
    try:
        content = json.loads(file.read_text())
        return content["current"], dict(content["servers"])
    except FileNotFoundError:
        return None, {}
    except OSError as exc:
        raise ClientError(f"{file} cannot be read: {exc.strerror}.") from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise ClientError(f"{file} is damaged. Move it away, then run `baobab login URL` again.") from exc


def store_login(server: str, login: Login | None, *, is_current: bool = True) -> None:
    """Stores the credential of a server, or forgets it. Raises ClientError."""
    current, servers = read_logins()
    if login is None:
        servers.pop(server, None)
        if current == server:
            current = next(iter(servers), None)
    else:
        servers[server] = login
        current = server if is_current or current is None else current
    content = json.dumps({"current": current, "servers": servers}, indent=1)
    file = find_file()
    new_file = file.with_suffix(".new")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A file that is there already would keep its mode.
        new_file.unlink(missing_ok=True)
        with os.fdopen(os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(content)
        new_file.replace(file)
    except OSError as exc:
        raise ClientError(f"{exc.filename or file} cannot be written: {exc.strerror}.") from exc


@contextlib.contextmanager
def lock_logins() -> Iterator[None]:
    """Keeps other commands from changing the file meanwhile: a refresh token sent twice ends the access."""
    folder = find_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600), "w")
    except OSError as exc:
        raise ClientError(f"{exc.filename or folder} cannot be written: {exc.strerror}.") from exc
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def describe_kind(login: Any) -> str:
    return "a key" if "key" in login else "OAuth"
