"""The host names of this server: its own, the subdomains of apps, and the hosts of their files."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from baobab.tools.core import types

_REMEMBERED = 1000
API_PATHS = frozenset(("data", "fn", "auth", "storage", "schema", "migrations", "_do", "v1", "mcp", "health"))
"""First segments of the paths that are the API's on an app's own host (tools/sites/file_paths.py warns of them)."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?")
_SCHEME = re.compile(r"https?://")
_DOMAIN = re.compile(r"(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""The form of a custom domain. What is no name of this form is not looked up."""
FindApp = Callable[[str], Awaitable[str | None]]
"""Finds the app that holds a custom domain, by its name."""
_PREVIEW = re.compile(r"preview-([0-9a-z]{6,20})-([0-9a-f]{32})")
"""The label of a preview's host, of the ids of the app and the deployment (tools/sites/access.py). It wins over an app
that has such a subdomain, so that nobody can take the place of a preview.
"""
APP_ID = re.compile(types.APP_ID)


@dataclass(frozen=True, slots=True)
class Host:
    """A host name that is allowed: the platform's own, `subdomain` below it, or one for the files of an app."""

    name: str
    subdomain: str | None = None
    files_of: str | None = None
    """The id of the app whose files this host serves. It serves nothing else."""
    preview_of: tuple[str, str] | None = None
    """The ids of an app and of one of its deployments: the host of the deployment's preview, and of the app's API."""
    has_site: bool = False
    """Whether the pages of the app's site are here, besides its API."""
    domain_of: str | None = None
    """The id of the app whose custom domain it is: its site and its API are here, as at its subdomain."""

    @property
    def is_of_app(self) -> bool:
        return self.subdomain is not None or self.preview_of is not None or self.domain_of is not None


class Hosts:
    """The allowed host names. Without them, any site could reach a server on loopback by DNS rebinding."""

    def __init__(
        self,
        own_addresses: Iterable[str],
        base_domain: str,
        files_domain: str = "",
        sites_domain: str = "",
        *,
        find_app: FindApp,
    ) -> None:
        own_names = {name.lower() for name in own_addresses}
        self._own = own_names | set(_LOOPBACK)
        # A page from a loopback address is the platform's own only if the platform runs on that machine.
        self._pages = self._own if base_domain == "localhost" else own_names
        self._suffix = "." + base_domain.lower()
        self._files_suffix = "." + files_domain if files_domain else None
        self._sites_suffix = "." + sites_domain.lower() if sites_domain else self._suffix
        self._find_app = find_app
        self._cache: dict[bytes, Host | None] = {}

    async def find(self, header: bytes) -> Host | None:
        """Returns the host that a Host header names; None if it is neither this server's nor a custom domain."""
        return self.find_own(header) or await self.find_domain(read_authority(header.decode("latin-1").lower()))

    async def find_domain(self, name: str) -> Host | None:
        """Returns the host of a custom domain; None if no app holds it. A stranger's name costs one look at most."""
        app_id = await self._find_app(name) if _DOMAIN.fullmatch(name) else None
        return None if app_id is None else Host(name, has_site=True, domain_of=app_id)

    def find_own(self, header: bytes) -> Host | None:
        """Returns the host of this server that a Host header names; None if it names none."""
        try:
            return self._cache[header]
        except KeyError:
            pass
        host = self._match_name(read_authority(header.decode("latin-1").lower()))
        if len(self._cache) >= _REMEMBERED:
            self._cache.clear()
        self._cache[header] = host
        return host

    def is_platform(self, origin: str) -> bool:
        """Returns whether a web origin is the platform's own page.

        A page below the platform's domain is not: it is of the app that has the subdomain, and a stranger's to others.
        """
        name = read_origin(origin)
        return bool(name) and name in self._pages

    def find_page(self, origin: str) -> Host | None:
        """Returns the host of an app's pages that a web origin names; None if it names none, or a custom domain."""
        host = self._match_name(read_origin(origin))
        return host if host is not None and host.is_of_app else None

    def _match_name(self, name: str) -> Host | None:
        if name in self._own:
            return Host(name)
        if self._files_suffix is not None and name.endswith(self._files_suffix):
            app_id = name.removesuffix(self._files_suffix).replace("-", "_")
            return Host(name, files_of=app_id) if APP_ID.fullmatch(app_id) else None
        for suffix in (self._sites_suffix, self._suffix):
            label = name.removesuffix(suffix)
            if label == name or not label or "." in label:
                continue
            if suffix == self._sites_suffix and (preview := _PREVIEW.fullmatch(label)):
                digits = preview[2]
                deployment_id = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
                return Host(name, preview_of=(f"app_{preview[1]}", deployment_id), has_site=True)
            return Host(name, label, has_site=suffix == self._sites_suffix)
        return None


class Addresses:
    """The addresses of this server, one for each of its names. Clients compare them with the address that they use.

    Loopback names count only if the server's own name is one, because a proxy may put one into the Host header.
    """

    def __init__(self, base_url: str, allowed_hosts: Iterable[str]) -> None:
        self._base_url = base_url
        self._scheme, _, self._authority = base_url.partition("://")
        self._names = {name.lower() for name in allowed_hosts}
        if is_loopback(read_authority(self._authority)):
            self._names |= set(_LOOPBACK)

    def find(self, host: bytes) -> str:
        """Returns the address with the name of a Host header; the server's base URL if the name is not allowed."""
        authority = host.decode("latin-1").lower()
        if authority != self._authority and read_authority(authority) in self._names:
            return f"{self._scheme}://{authority}"
        return self._base_url


def read_origin(origin: str) -> str:
    """Returns the host name of a web origin in lower case; empty if it has none."""
    scheme = _SCHEME.match(origin)
    return read_authority(origin[scheme.end() :]) if scheme else ""


def read_authority(authority: str) -> str:
    """Returns the name in `name:port`; empty if the text does not have that form."""
    match = _AUTHORITY.fullmatch(authority)
    return (match[1] or match[2].rstrip(".")) if match else ""


def is_api_path(path: str) -> bool:
    """Returns whether a path on an app's own host is the API's, whatever files the app's site has."""
    return path[1:].partition("/")[0] in API_PATHS


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
