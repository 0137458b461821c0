"""Host names as people write them, brought into the one form in which they are compared."""

import re
from urllib.parse import urlsplit

import idna

from baobab.tools.core.services import Options
from baobab.tools.domains.errors import HostnameInvalid

CHALLENGE = "_baobab-challenge"
"""The label of the TXT record that proves a name, before the name."""
_LONGEST = 253 - len(CHALLENGE) - 1
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label that makes a name an address (WHATWG URL)."""
_NOWHERE = ("localhost", "local", "onion", "invalid", "arpa")
"""Names that no owner can prove in the DNS (RFC 6761, 6762, 7686)."""
# Below these, registries give names to strangers. Whoever cannot set the TXT record gets none anyway: this only says so
# at once for those under which most names are.
_PUBLIC = re.compile(r"(ac|co|com|edu|gob|gov|mil|ne|net|or|org)\.[a-z]{2}")


def normalise_hostname(text: str, options: Options) -> str:
    """Returns a name in lower case, as ASCII, without a dot at its end. Raises HostnameInvalid."""
    if "://" in text or any(character in text for character in "/\\@?#:%[] \t\r\n"):
        raise HostnameInvalid("A host name has no scheme, port, path or spaces.")
    if "*" in text:
        raise HostnameInvalid("A wildcard cannot be a custom domain. Add each name by itself.")
    try:
        name = idna.encode(text, uts46=True, std3_rules=True).decode().lower().removesuffix(".")
    except (idna.IDNAError, UnicodeError) as exc:
        raise HostnameInvalid("This is not the form of a host name.") from exc
    labels = name.split(".")
    if len(name) > _LONGEST:
        raise HostnameInvalid(f"A custom domain has at most {_LONGEST} characters.")
    if _NUMBER.fullmatch(labels[-1]):
        raise HostnameInvalid("An IP address cannot be a custom domain.")
    if len(labels) < 2 or not all(labels):
        raise HostnameInvalid("A custom domain has a dot, as `example.com` has.")
    if not labels[-1][0].isalpha():
        raise HostnameInvalid(f"No names end in `.{labels[-1]}`.")
    if labels[-1] in _NOWHERE:
        raise HostnameInvalid(f"Names below `.{labels[-1]}` cannot be proved.")
    if is_public(name):
        raise HostnameInvalid("Names below this one belong to different owners. Add the name that is yours below it.")
    if is_own(name, options):
        raise HostnameInvalid("This name is the server's own, or below one. Apps have their subdomains there.")
    return name


def is_public(name: str) -> bool:
    """Returns whether a registry gives away the names below a name, as far as one can tell."""
    return _PUBLIC.fullmatch(name) is not None


def is_apex(name: str) -> bool:
    """Returns whether a name is the top of a domain, which can have no CNAME record."""
    parent = name.partition(".")[2]
    return "." not in parent or is_public(parent)


def is_own(name: str, options: Options) -> bool:
    """Returns whether a name is one of the installation's, or below those where apps have theirs."""
    base = urlsplit(options.base_url).hostname or ""
    own_names = {host.lower() for host in (base, *options.allowed_hosts)}
    domains = {base, options.base_domain.lower(), options.files_domain, options.sites_domain} - {""}
    return name in own_names | domains or any(name.endswith(f".{domain}") for domain in domains)


def build_target(options: Options, subdomain: str) -> str:
    """Returns the host name to which a custom domain of an app leads."""
    return (urlsplit(options.build_site_address(subdomain)).hostname or "").lower()


def build_challenge(hostname: str) -> str:
    """Returns the name of the TXT record that proves a name."""
    return f"{CHALLENGE}.{hostname}"
