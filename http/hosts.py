"""The host names of this server: its own, the subdomains of apps, and the hosts of their files."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from baobab.tools.core import types

_REMEMBERED = 1000
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?")
_SCHEME = re.compile(r"https?://")
APP_ID = re.compile(types.APP_ID)


@dataclass(frozen=True, slots=True)
class Host:
    """A host name that is allowed: the platform's own, `subdomain` below it, or one for the files of an app."""

    name: str
    subdomain: str | None = None
    files_of: str | None = None
    """The id of the app whose files this host serves. It serves nothing else."""


class Hosts:
    """The allowed host names. Without them, any site could reach a server on loopback by DNS rebinding."""

    def __init__(self, own_addresses: Iterable[str], base_domain: str, files_domain: str = "") -> None:
        own_names = {name.lower() for name in own_addresses}
        self._own = own_names | set(_LOOPBACK)
        # A page from a loopback address is the platform's own only if the platform runs on that machine.
        self._pages = self._own if base_domain == "localhost" else own_names
        self._suffix = "." + base_domain.lower()
        self._files_suffix = "." + files_domain if files_domain else None
        self._cache: dict[bytes, Host | None] = {}

    def find(self, header: bytes) -> Host | None:
        """Returns the host that a Host header names; None if it is not allowed."""
        try:
            return self._cache[header]
        except KeyError:
            pass
        host = self._match_name(_host_name(header.decode("latin-1").lower()))
        if len(self._cache) >= _REMEMBERED:
            self._cache.clear()
        self._cache[header] = host
        return host

    def is_platform(self, origin: str) -> bool:
        """Returns whether a web origin is the platform's own page or one of its apps'."""
        scheme = _SCHEME.match(origin)
        name = _host_name(origin[scheme.end() :]) if scheme else ""
        # Strangers' files are not pages of the platform, though their host may be below the platform's domain.
        return name in self._pages or (name.endswith(self._suffix) and not self._is_of_files(name))

    def _is_of_files(self, name: str) -> bool:
        return self._files_suffix is not None and name.endswith(self._files_suffix)

    def _match_name(self, name: str) -> Host | None:
        if name in self._own:
            return Host(name)
        if self._files_suffix is not None and name.endswith(self._files_suffix):
            app_id = name.removesuffix(self._files_suffix).replace("-", "_")
            return Host(name, files_of=app_id) if APP_ID.fullmatch(app_id) else None
        if name.endswith(self._suffix):
            label = name.removesuffix(self._suffix)
            if label and "." not in label:
                return Host(name, label)
        return None


class Addresses:
    """The addresses of this server, one for each of its names. Clients compare them with the address that they use.

    Loopback names count only if the server's own name is one, because a proxy may put one into the Host header.
    """

    def __init__(self, base_url: str, allowed_hosts: Iterable[str]) -> None:
        self._base_url = base_url
        self._scheme, _, self._authority = base_url.partition("://")
        self._names = {name.lower() for name in allowed_hosts}
        if is_loopback(_host_name(self._authority)):
            self._names |= set(_LOOPBACK)

    def find(self, host: bytes) -> str:
        """Returns the address with the name of a Host header; the server's base URL if the name is not allowed."""
        authority = host.decode("latin-1").lower()
        if authority != self._authority and _host_name(authority) in self._names:
            return f"{self._scheme}://{authority}"
        return self._base_url


def _host_name(authority: str) -> str:
    """Returns the name in `name:port`; empty if the text does not have that form."""
    match = _AUTHORITY.fullmatch(authority)
    return (match[1] or match[2].rstrip(".")) if match else ""


def platform_path(path: str, app_id: str) -> str:
    """Returns the platform's path for a path on an app's own host, which leaves the app id out."""
    first, slash, remainder = path[1:].partition("/")
    if first in ("v1", "health", "docs", "openapi.json", "llms.txt", "llms-full.txt", "mcp"):
        return path
    if first in ("auth", "storage"):
        return f"/{first}/{app_id}{slash}{remainder}"
    if first == "data":
        return f"/v1/{app_id}/data{slash}{remainder}"
    return f"/v1/{app_id}/{first}{slash}{remainder}"


def is_loopback(name: str) -> bool:
    return name in _LOOPBACK
