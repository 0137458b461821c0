"""Where outgoing requests may go: the URLs that are accepted, and the network addresses that may be reached.

The lists of networks are written out because `ipaddress.is_global` differs between patch releases of Python.
They follow the IANA special-purpose address registries (RFC 6890).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self
from urllib.parse import quote

from baobab.tools.core.errors import BaobabError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL = 8192
# Ports of protocols that could act on the text of an HTTP request, or of services that often trust their network.
# Not one number a line, which would gain the reader nothing.
# fmt: off
DENIED_PORTS = frozenset([
    7, 9, 19, 21, 22, 23, 25, 53, 69, 79, 110, 111, 119, 123, 135, 137, 138, 139, 143, 161, 179, 389, 427, 445, 465,
    512, 513, 514, 515, 543, 544, 548, 554, 563, 587, 631, 636, 873, 993, 995, 1433, 1521, 1723, 2049, 3306, 3389,
    4045, 5060, 5061, 5432, 5900, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6697, 11211, 27017,
])
# fmt: on
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE | re.ASCII)
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+)(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII)
_HOST_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}(\.[a-z0-9_][a-z0-9_-]{0,62})*")
# inet_aton and browsers take a host for an IPv4 address if its last label is a number.
_ENDS_IN_A_NUMBER = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\.?")

_REFUSED_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers (CGNAT)
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host agent, on a public address
        "169.254.0.0/16",  # link-local, with the clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Only this part of IPv6 is used for public unicast; loopback, ULA, link-local, multicast and the rest lie outside.
_PUBLIC_V6 = IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, with Teredo, ORCHID and benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: any IPv4 address may be inside, and no one needs it any more (RFC 7526)
        "3fff::/20",  # documentation
    )
)
# An IPv6-only host reaches the public IPv4 Internet through this prefix, so the address inside is checked.
_NAT64 = IPv6Network("64:ff9b::/96")
# Metadata services, which hand out machine credentials. A wide network in the allow list must not open these.
_METADATA = frozenset(
    ip_address(address)
    for address in (
        "100.100.100.200",
        "168.63.129.16",
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "192.0.0.192",
        "fd00:ec2::23",
        "fd00:ec2::254",
        "fd20:ce::254",
    )
)


class EgressError(BaobabError):
    """The base of all errors of outgoing requests. No message names an address that a host resolved to."""

    code = "EGRESS_FAILED"
    status = 502
    summary = "The outgoing request failed."
    remediation = "Check the URL and the service behind it, then try again."


class EgressUnavailable(EgressError):
    code = "EGRESS_UNAVAILABLE"
    summary = "The service could not be reached, or closed the connection."
    remediation = "Check that the host is right and the service runs, then try again."


class UrlRefused(EgressError):
    code = "EGRESS_URL_REFUSED"
    status = 400
    summary = "This server may not call the URL."
    remediation = "Use a plain http or https URL with a host name, without credentials, spaces or control characters."


class AddressRefused(EgressError):
    code = "EGRESS_ADDRESS_REFUSED"
    status = 400
    summary = "The URL leads to an address that this server may not call."
    remediation = (
        "Use a public host. An operator can allow private addresses, such as BAOBAB_EGRESS_ALLOW=127.0.0.1, and "
        "restart the server."
    )


class CredentialInClear(UrlRefused):
    code = "EGRESS_CREDENTIAL_IN_CLEAR"
    summary = "A credential is not sent over plain http to a public host, where others could read it."
    remediation = "Use an https URL."


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that was parsed and is rebuilt from checked parts only.

    host: ASCII; an IPv6 address without brackets. address: set when the host is an address. rest: path and query.
    """

    scheme: str
    host: str
    port: int
    rest: str
    address: Address | None

    @classmethod
    def parse(cls, url: str, https_only: bool) -> Self:
        """Parses a URL. Raises UrlRefused, and AddressRefused for an address in an unusual notation."""
        # Not printable are control characters and all white space but the plain space.
        if len(url) > MAX_URL or not url.isprintable() or " " in url or "\\" in url:
            raise UrlRefused
        parts = _URL.match(url)
        if parts is None or (https_only and parts[1].lower() != "https"):
            raise UrlRefused(
                "Only https URLs are allowed here." if https_only else "Only http and https URLs are allowed."
            )
        authority = _AUTHORITY.fullmatch(parts[2])
        if "@" in parts[2] or authority is None:
            raise UrlRefused
        scheme = parts[1].lower()
        host, address = _parse_host(authority[1])
        remainder = quote(parts[3], safe="".join(map(chr, range(0x21, 0x7F))))
        return cls(
            scheme,
            host,
            _parse_port(authority[2], scheme),
            remainder if remainder[:1] == "/" else "/" + remainder,
            address,
        )

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _default_port(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.rest}"


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _parse_port(text: str | None, scheme: str) -> int:
    port = _default_port(scheme) if text is None else int(text)
    if not 0 < port < 2**16 or port in DENIED_PORTS:
        raise UrlRefused("The port of the URL is not allowed.")
    return port


def _parse_host(text: str) -> tuple[str, Address | None]:
    if text.startswith("["):
        try:
            address = IPv6Address(text[1:-1])
        except ValueError as exc:
            raise UrlRefused from exc
        return str(address), address
    name = _to_ascii(text).lower()
    if _ENDS_IN_A_NUMBER.fullmatch(name):
        return name, _parse_ipv4(name)
    if len(name) > 253 or _HOST_NAME.fullmatch(name) is None:
        raise UrlRefused("The host of the URL is not a valid name.")
    return name, None


def _parse_ipv4(text: str) -> IPv4Address:
    try:
        # Accepts only four decimal numbers without leading zeros; resolvers accept many other notations.
        return IPv4Address(text)
    except ValueError as exc:
        raise AddressRefused("An IPv4 address must be written as four decimal numbers.") from exc


def _to_ascii(host: str) -> str:
    if host.isascii():
        return host
    from yarl import URL  # noqa: PLC0415 - loaded with aiohttp, not before

    try:
        return URL.build(scheme="http", host=host).raw_host or ""
    except ValueError as exc:
        raise UrlRefused("The host of the URL is not a valid name.") from exc


class AddressPolicy:
    """Decides which addresses may be reached.

    allow: networks such as `10.1.0.0/16`; ValueError for text that is no network. A metadata address is permitted only
    by a network of that single address.
    """

    def __init__(self, allow: Iterable[str | Network] = ()) -> None:
        self._allow: tuple[Network, ...] = tuple(ip_network(network) for network in allow)

    def is_permitted(self, address: Address) -> bool:
        target = _effective_address(address)
        networks = [network for network in self._allow if target in network]
        if target in _METADATA:
            return any(network.num_addresses == 1 for network in networks)
        return bool(networks) or _is_public(target)

    def is_read_by_others(self, address: Address) -> bool:
        """Returns whether plain text that is sent there passes strangers' networks. The networks in `allow` count as
        private.
        """
        target = _effective_address(address)
        return _is_public(target) and not any(target in network for network in self._allow)


def _effective_address(address: Address) -> Address:
    """Returns the IPv4 address that an IPv6 address stands for, else the address itself without its zone."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or IPv6Address(int(address))


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _REFUSED_V6)
