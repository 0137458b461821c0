"""Client-id metadata documents: the client's id is an https address at which the client describes itself
(draft-ietf-oauth-client-id-metadata-document)."""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from baobab.runtime.net.addresses import EgressError
from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.clients import MOST_REDIRECTS, Client, readable_name
from baobab.runtime.oauth.errors import DocumentRefused, RedirectRefused
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.core.services import Services
from baobab.tools.core.tenancy import current_tenant

_MAX_BYTES = 10 * 1024
_TIMEOUT = 5.0
_KEPT_SECONDS = 600.0
_REFUSAL_KEPT_SECONDS = 60.0
_MOST_KEPT = 500
_MOST_AT_ONCE, _MOST_OF_A_SITE, _MOST_WAITING = 16, 2, 4
"""The most documents that are fetched at once, in total and from one site, and the most that one caller may wait
for.
"""
_MOST_A_MINUTE = 10
"""The most documents that are fetched for one caller; cached ones do not count."""
# A host and a path; no user, fragment or `..` (section 3 of the draft).
_ADDRESS = re.compile(r"https://[^/?#@\s\\]+/[^?#\s\\]+(\?[^#\s\\]*)?")
_STEPS = re.compile(r"/\.\.?(/|$)")
_JSON = re.compile(r"application/([a-z0-9.-]+\+)?json\s*(;.*)?", re.IGNORECASE)


def is_address(client_id: str) -> bool:
    """Returns whether a client id is the address of a document. Other ids were assigned by this server at
    registration.
    """
    return client_id.startswith("https://")


class ClientDocuments:
    """Fetches clients' documents, and caches clients for ten minutes and refusals for one."""

    def __init__(self, services: Services) -> None:
        self._outgoing = services.http_client
        self._limits = services.limits
        self._now = services.clock.monotonic
        self._cache: dict[str, tuple[float, Client | str]] = {}
        self._shares = KeyedSemaphore(1)
        self._asking: Counter[str] = Counter()

    async def client(self, address: str) -> Client:
        """Returns the client that an address describes. Raises DocumentRefused if it describes none.

        The document is fetched before anybody has signed in: it has the redirect addresses, and until these are known
        not even an error may be sent to one (RFC 6749, 4.1.2.1).
        """
        entry = self._current(address)
        if entry is None:
            # Strangers choose these addresses: few are fetched at a time, so that slow hosts cannot block the others.
            async with self._fetch_slot(address):
                entry = self._current(address)
                if entry is None:
                    await resolve_answer(self._limits.spend("oauth-document", current_tenant(), _MOST_A_MINUTE, 60))
                    entry = self._keep(address, await self._fetch_client(address))
        if isinstance(entry[1], str):
            raise DocumentRefused(entry[1])
        return entry[1]

    def _current(self, address: str) -> tuple[float, Client | str] | None:
        entry = self._cache.get(address)
        return entry if entry is not None and entry[0] > self._now() else None

    @asynccontextmanager
    async def _fetch_slot(self, address: str) -> AsyncGenerator[None, None]:
        """Waits for room to fetch, within the limits of the caller, the site and the server. Raises DocumentRefused if
        too many are waiting.
        """
        asking = current_tenant()
        if self._asking[asking] >= _MOST_WAITING:
            raise DocumentRefused("Too many documents are being fetched for you. Try again in a few seconds.")
        self._asking[asking] += 1
        try:
            async with (
                self._shares.acquire_slot(asking),
                self._shares.acquire_slot(("site", _site(address)), _MOST_OF_A_SITE),
                self._shares.acquire_slot("all", _MOST_AT_ONCE),
            ):
                yield
        finally:
            self._asking[asking] -= 1
            if not self._asking[asking]:
                del self._asking[asking]

    def _keep(self, address: str, outcome: Client | str) -> tuple[float, Client | str]:
        self._cache.pop(address, None)
        while len(self._cache) >= _MOST_KEPT:
            del self._cache[next(iter(self._cache))]
        seconds = _REFUSAL_KEPT_SECONDS if isinstance(outcome, str) else _KEPT_SECONDS
        entry = self._cache[address] = (self._now() + seconds, outcome)
        return entry

    async def _fetch_client(self, address: str) -> Client | str:
        """Returns the client, or a sentence that says why there is none."""
        if not _ADDRESS.fullmatch(address) or _STEPS.search(urlsplit(address).path):
            return "The client's id is not the address of a document."
        try:
            answer = await self._outgoing.request(
                "GET",
                address,
                headers={"accept": "application/json"},
                max_bytes=_MAX_BYTES,
                timeout=_TIMEOUT,
                https_only=True,
            )
        except EgressError as error:
            return f"The client's document cannot be fetched. {error.message}"
        if answer.status != 200:
            return f"The client's document answers {answer.status}."
        if not _JSON.fullmatch(answer.headers.get("Content-Type", "")):
            return "The client's document is not sent as JSON."
        try:
            return _read(address, from_json(answer.body))
        except (ValueError, RedirectRefused) as error:
            return f"The client's document is not right: {error}"


def _site(address: str) -> str:
    """Returns the last two parts of the host's name, which hosts of the same owner share."""
    return ".".join((urlsplit(address).hostname or "").rsplit(".", 2)[-2:])


def _read(address: str, document: Any) -> Client:
    if not isinstance(document, Mapping) or document.get("client_id") != address:
        raise ValueError("its client_id is not its own address")
    if "client_secret" in document or document.get("token_endpoint_auth_method", "none") != "none":
        raise ValueError("only public clients are served (token_endpoint_auth_method none)")
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= MOST_REDIRECTS or not all(isinstance(u, str) for u in uris):
        raise ValueError(f"it names no redirect_uris, or more than {MOST_REDIRECTS}")
    name = document.get("client_name")
    host = urlsplit(address).netloc
    return {
        "client_id": address,
        "name": readable_name(name if isinstance(name, str) else "", host),
        "redirect_uris": [redirects.check_redirect(uri) for uri in uris],
        "document": True,
    }
