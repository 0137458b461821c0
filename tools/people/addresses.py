"""The addresses of profiles: one form for all spellings of the same one."""

import hashlib
import re
from urllib.parse import quote, unquote, urlsplit

from baobab.tools.people.errors import AddressInvalid

_COUNTRY = re.compile(r"^([a-z]{2}|www)\.(?=[^.]+\.[^.]+)")


def normalise_address(address: str) -> str:
    """Returns the one form of a profile's address. Raises AddressInvalid.

    Host and path are in lower case, without `www.` or the subdomain of a country; escapes are written alike; the query,
    the fragment and a slash at the end are left out.
    """
    text = address.strip()
    if "://" not in text:
        text = f"https://{text}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise AddressInvalid from exc
    if parts.scheme.lower() not in ("http", "https") or port is not None or parts.username is not None:
        raise AddressInvalid
    host = _COUNTRY.sub("", host.lower().rstrip("."))
    path = quote(unquote(parts.path).lower(), safe="/-._~!$&'()*+,;=:@").rstrip("/")
    if "." not in host or not path or not re.fullmatch(r"[a-z0-9.-]+", host):
        raise AddressInvalid
    return f"https://{host}{path}"


def cache_key(url: str, *, is_simulated: bool) -> str:
    """Returns the key of a normalised address. An invented person never takes the place of a real one."""
    return hashlib.sha256(f"{'simulated' if is_simulated else 'live'} {url}".encode()).hexdigest()
