"""What is wrong with the installation's settings."""

from collections.abc import Mapping
from urllib.parse import urlsplit

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def list_faults(settings: Mapping[str, str], options_address: str) -> list[str]:
    """What is wrong with the settings, or will be in production, each in a sentence or two."""
    faults: list[str] = []
    address = urlsplit(options_address)
    is_local = address.hostname in _LOOPBACK
    if not is_local and address.scheme != "https":
        faults.append(
            "BASE_URL is not https: others on the way can read passwords, keys and sessions, and browsers offer "
            "no passkeys. Put a proxy with TLS before the server, and set BAOBAB_BASE_URL to its https address."
        )
    if is_local and settings["host"] not in _LOOPBACK:
        faults.append(
            "The server listens to other machines, but links in mails and the addresses told to clients name this "
            "machine only. Set BAOBAB_BASE_URL."
        )
    if not is_local and not settings["trusted_proxies"]:
        faults.append(
            "No proxy is trusted. If one stands before the server, all clients seem to come from its address and share "
            "one rate limit: set BAOBAB_TRUSTED_PROXIES."
        )
    if not settings["smtp_url"]:
        faults.append("There is no mail server: mails wait in the outbox, and nobody gets them. Set BAOBAB_SMTP_URL.")
    if not is_local and settings["signup"] == "open":
        faults.append(
            "Everybody who reaches the server can make an account. Set BAOBAB_SIGNUP=closed if that is not meant."
        )
    if not settings["secret_key"]:
        faults.append(
            "The key that seals secrets is in the data folder, beside what it seals. Keep a copy elsewhere, or set "
            "BAOBAB_SECRET_KEY."
        )
    return faults
