"""Passkeys (WebAuthn): registration and sign-in, for every part of the platform that stores passkeys.

    ceremonies = Ceremonies(services.vault, services.clock.time, "users:app_1")
    options, state = await ceremonies.begin_registration(site, owner)       # send both to the browser
    passkey = await ceremonies.finish_registration(state, user_id, credential)   # store it
    options, state = await ceremonies.begin_sign_in(site)                   # an empty `allow` finds discoverable ones
    attempt = ceremonies.open_attempt(state, credential)                    # names the passkey: load its row by it
    sign_count = await attempt.verify(public_key, stored_sign_count)        # store it, and `attempt.digest` as spent

Nothing is stored between the two halves: `state` holds, sealed, what the second half needs. To make sure that an answer
is used once, the caller who finishes a sign-in keeps `attempt.digest` until `attempt.ends_at` and refuses it a second
time.

In the browser, `PublicKeyCredential.parseCreationOptionsFromJSON(options)` and `parseRequestOptionsFromJSON(options)`
read the options, and `credential.toJSON()` writes what the second half takes.
"""

import asyncio
import importlib
import ipaddress
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from baobab.runtime.late_import import LateImport
from baobab.storage.secrets import SecretUnreadable, Vault, digest_token
from baobab.tools.core.errors import BadRequest

LIFETIME_SECONDS = 300
_CONTEXT = "passkey ceremony:"
_library: LateImport[Any] = LateImport(lambda: importlib.import_module("webauthn"))


class PasskeyRefused(BadRequest):
    code = "AUTH_PASSKEY_REFUSED"
    summary = "The passkey was not accepted."
    remediation = "Start again. Each attempt works once, within five minutes, on the page where it started."


class PasskeysUnavailable(BadRequest):
    code = "AUTH_PASSKEYS_UNAVAILABLE"
    summary = "Passkeys do not work at this address."
    remediation = (
        "Open the page by its host name over https, or as http://localhost. Passkeys do not work on IP addresses."
    )


@dataclass(frozen=True, slots=True)
class Site:
    """A web origin. Passkeys belong to its host name (the relying party's id)."""

    origin: str
    rp_id: str

    @classmethod
    def parse(cls, origin: str) -> "Site":
        """Parses an origin such as `https://example.com`. Raises PasskeysUnavailable if browsers do not offer passkeys
        there.
        """
        try:
            parts = urlsplit(origin)
            host, port = parts.hostname or "", parts.port
        except ValueError as exc:
            raise PasskeysUnavailable from exc
        is_local = host == "localhost" or host.endswith(".localhost")
        if not host or _is_ip_address(host) or not (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
            raise PasskeysUnavailable
        default = {"https": 443, "http": 80}[parts.scheme]
        return cls(f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, default) else ""), host)


@dataclass(frozen=True, slots=True)
class Owner:
    """The person for whom a passkey is made. id: at most 64 bytes that reveal nothing about the person."""

    id: str
    name: str
    display_name: str
    service_name: str
    """The name that the browser shows for the site."""


@dataclass(frozen=True, slots=True)
class NewPasskey:
    """A passkey that a browser has created. credential_id and public_key: base64url."""

    credential_id: str
    public_key: str
    sign_count: int
    transports: list[str]
    backed_up: bool
    rp_id: str


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A browser's answer to a sign-in, not verified yet."""

    subject: str
    """The `subject` of `begin_sign_in`; empty if it was given none."""
    rp_id: str
    credential_id: str
    owner_id: str | None
    """The passkey's owner, according to the authenticator; None if it does not say."""
    digest: str
    ends_at: float
    _origin: str
    _challenge: bytes
    _credential: dict[str, Any]

    async def verify(self, public_key: str, sign_count: int, *, needs_verification: bool = True) -> int:
        """Verifies the answer and returns the passkey's new sign count. Raises PasskeyRefused.

        needs_verification: whether the authenticator must have verified the person by a PIN or a finger. Only then does
        the passkey count as two factors.
        """
        webauthn = await _library.get()

        def run() -> Any:
            return webauthn.verify_authentication_response(
                credential=self._credential,
                expected_challenge=self._challenge,
                expected_rp_id=self.rp_id,
                expected_origin=self._origin,
                credential_public_key=webauthn.base64url_to_bytes(public_key),
                credential_current_sign_count=sign_count,
                require_user_verification=needs_verification,
            )

        return int((await _verify(run)).new_sign_count)


@dataclass(frozen=True, slots=True)
class Ceremonies:
    """Registration and sign-in with one family of passkeys. family: what is sealed for one family cannot be used in
    another.
    """

    vault: Vault
    time: Callable[[], float]
    family: str

    async def begin_registration(self, site: Site, owner: Owner, *, known_ids: Sequence[str] = ()) -> tuple[Any, str]:
        """Returns the options for `navigator.credentials.create` and the state for `finish_registration`.

        known_ids: the ids of the owner's passkeys, so that the browser does not create one of them again.
        """
        webauthn, structs = await _library.get(), await _get_structs()
        challenge = secrets.token_bytes(32)
        options = webauthn.generate_registration_options(
            rp_id=site.rp_id,
            rp_name=owner.service_name,
            user_id=owner.id.encode(),
            user_name=owner.name,
            user_display_name=owner.display_name or owner.name,
            challenge=challenge,
            timeout=LIFETIME_SECONDS * 1000,
            # So that each passkey can be a sign-in of its own: found without a name, with a verified person.
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=_describe(webauthn, structs, known_ids),
        )
        return json.loads(webauthn.options_to_json(options)), self._seal("create", site, challenge, owner.id)

    async def finish_registration(self, state: str, owner_id: str, credential: dict[str, Any]) -> NewPasskey:
        """Verifies the answer of `navigator.credentials.create` for this owner. Raises PasskeyRefused."""
        ceremony = self._open("create", state)
        if ceremony["subject"] != owner_id:
            raise PasskeyRefused
        webauthn = await _library.get()

        def run() -> Any:
            return webauthn.verify_registration_response(
                credential=credential,
                expected_challenge=webauthn.base64url_to_bytes(ceremony["challenge"]),
                expected_rp_id=ceremony["rp_id"],
                expected_origin=ceremony["origin"],
                require_user_verification=True,
            )

        registration = await _verify(run)
        transports = credential.get("response", {}).get("transports") or []
        transport_names = (
            [each for each in transports if isinstance(each, str) and len(each) <= 20] if _is_list(transports) else []
        )
        encode = webauthn.helpers.bytes_to_base64url
        return NewPasskey(
            credential_id=encode(registration.credential_id),
            public_key=encode(registration.credential_public_key),
            sign_count=registration.sign_count,
            transports=transport_names[:10],
            backed_up=registration.credential_backed_up,
            rp_id=ceremony["rp_id"],
        )

    async def begin_sign_in(
        self, site: Site, *, allow: Sequence[str] = (), subject: str = "", needs_verification: bool = True
    ) -> tuple[Any, str]:
        """Returns the options for `navigator.credentials.get` and the state for `open_attempt`.

        allow: the ids of the passkeys that may be used; empty for any that the browser finds. subject: kept in the
        state.
        """
        webauthn, structs = await _library.get(), await _get_structs()
        challenge, needs = secrets.token_bytes(32), structs.UserVerificationRequirement
        options = webauthn.generate_authentication_options(
            rp_id=site.rp_id,
            challenge=challenge,
            timeout=LIFETIME_SECONDS * 1000,
            allow_credentials=_describe(webauthn, structs, allow),
            user_verification=needs.REQUIRED if needs_verification else needs.PREFERRED,
        )
        return json.loads(webauthn.options_to_json(options)), self._seal("get", site, challenge, subject)

    async def open_attempt(self, state: str, credential: dict[str, Any]) -> SignInAttempt:
        """Parses the answer of `navigator.credentials.get`, so that its passkey can be looked up.

        Raises PasskeyRefused.
        """
        webauthn, ceremony = await _library.get(), self._open("get", state)
        credential_id, response = credential.get("id"), credential.get("response")
        if not isinstance(credential_id, str) or not isinstance(response, dict):
            raise PasskeyRefused
        handle = response.get("userHandle")
        try:
            owner_id = webauthn.base64url_to_bytes(handle).decode() if isinstance(handle, str) and handle else None
        except ValueError as exc:
            raise PasskeyRefused from exc
        return SignInAttempt(
            subject=ceremony["subject"],
            rp_id=ceremony["rp_id"],
            credential_id=credential_id.rstrip("="),
            owner_id=owner_id,
            digest=digest_token(ceremony["challenge"]),
            ends_at=ceremony["ends"],
            _origin=ceremony["origin"],
            _challenge=webauthn.base64url_to_bytes(ceremony["challenge"]),
            _credential=credential,
        )

    def _seal(self, kind: str, site: Site, challenge: bytes, subject: str) -> str:
        webauthn = _library.import_now()
        state: dict[str, Any] = {"kind": kind, "origin": site.origin, "rp_id": site.rp_id, "subject": subject}
        state |= {"challenge": webauthn.helpers.bytes_to_base64url(challenge), "ends": self.time() + LIFETIME_SECONDS}
        return self.vault.seal(json.dumps(state).encode(), _CONTEXT + self.family)

    def _open(self, kind: str, state: str) -> dict[str, Any]:
        try:
            ceremony: dict[str, Any] = json.loads(self.vault.open(state, _CONTEXT + self.family))
        except (SecretUnreadable, ValueError) as exc:
            raise PasskeyRefused from exc
        if ceremony["kind"] != kind or ceremony["ends"] <= self.time():
            raise PasskeyRefused
        return ceremony


async def _get_structs() -> Any:
    return (await _library.get()).helpers.structs


def _describe(webauthn: Any, structs: Any, credential_ids: Sequence[str]) -> list[Any]:
    return [structs.PublicKeyCredentialDescriptor(id=webauthn.base64url_to_bytes(each)) for each in credential_ids]


async def _verify(run: Callable[[], Any]) -> Any:
    """Runs a verification in a thread, because a stranger's data may take milliseconds to parse."""
    exceptions = (await _library.get()).helpers.exceptions
    try:
        return await asyncio.to_thread(run)
    except (exceptions.WebAuthnException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise PasskeyRefused from exc


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
