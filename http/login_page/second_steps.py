"""The steps after the first factor: the second factor, setting one up, and creating a passkey for the next time."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from starlette.responses import Response

from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.errors import BadRequest, BaobabError, Unauthenticated
from baobab.tools.core.registry import Registry
from baobab.tools.users.redirects import build_token_address

VIEWS = ("second-factor", "enrol", "recovery", "register", "verify")
SHOWN = ("challenge", "ticket", "ceremony", "onward", "uri")
"""The values that only some of these views show."""
_TICKET = "login page ticket:"
_LONGEST_URI = 1000

Fields = Mapping[str, str]


class Visit(Protocol):
    """One request to the page (http/login_page/page.py)."""

    registry: Registry
    app_id: str
    redirect_to: str | None
    origin: str | None
    wish: str

    def render(self, view: str, error: BaobabError | None = None, **view_values: Any) -> Response: ...

    def leave(self, signed_in: Mapping[str, Any]) -> Response: ...

    async def call(self, tool: str, **arguments: Any) -> Any: ...

    async def call_as(self, caller: Caller, tool: str, **arguments: Any) -> Any: ...


async def go_on(visit: Visit, answer: Mapping[str, Any]) -> Response:
    """Continues after the first factor: with the second one, with a new passkey, or back at the app."""
    if "challenge" not in answer:
        return await _offer_passkey(visit, answer) if visit.wish == "passkey" else visit.leave(answer)
    if not answer["enrol"]:
        return visit.render("second-factor", challenge=answer["challenge"], methods=answer["methods"])
    return await _enrol(visit, answer["challenge"])


async def resume(visit: Visit, challenge: str) -> Response:
    """Shows the step of a challenge that came in the page's address."""
    return await go_on(visit, await visit.call("auth_second_factor_methods", challenge=challenge))


async def take_step(visit: Visit, step: str, fields: Fields) -> Response:
    """Handles a form of these steps, and shows it again if it was refused."""
    try:
        return await STEPS[step](visit, fields)
    except Unauthenticated:
        # The sign-in is over.
        raise
    except BaobabError as error:
        return await _ask_again(visit, step, fields, error)


async def _ask_again(visit: Visit, step: str, fields: Fields, error: BaobabError) -> Response:
    challenge = fields.get("challenge", "")
    if step in ("enrol", "enrol-passkey") and fields.get("uri", "").startswith("otpauth:"):
        return visit.render("enrol", error, challenge=challenge, **_describe_secret(fields["uri"]))
    if step in ("second-factor", "passkey") and challenge:
        methods = await visit.call("auth_second_factor_methods", challenge=challenge)
        return visit.render("second-factor", error, challenge=challenge, methods=methods["methods"])
    if step == "register":
        return await _offer_passkey(visit, _open(visit, fields), error)
    if step == "verify":
        return visit.render("verify", error, ticket=fields.get("ticket", ""))
    return visit.render("password" if step == "passkey" else "problem", error)


async def _enrol(visit: Visit, challenge: str) -> Response:
    enrolment = await visit.call("auth_totp_enrol", challenge=challenge)
    return visit.render("enrol", challenge=challenge, **_describe_secret(enrolment["uri"]))


async def _take_code(visit: Visit, fields: Fields) -> Response:
    answer = {"challenge": fields.get("challenge", ""), "code": fields.get("code", "").strip()}
    return await go_on(visit, await visit.call("auth_second_factor", **answer))


async def _take_first_code(visit: Visit, fields: Fields) -> Response:
    answer = {"challenge": fields.get("challenge", ""), "code": fields.get("code", "").strip()}
    confirmation = await visit.call("auth_totp_confirm", **answer)
    signed_in, onward, ticket = confirmation["signed_in"], None, None
    if visit.wish:
        ticket = _seal(visit, signed_in)
    elif visit.redirect_to is not None:
        onward = build_token_address(visit.redirect_to, signed_in)
    return visit.render("recovery", codes=confirmation["recovery_codes"], onward=onward, ticket=ticket)


async def _make_second_factor(visit: Visit, fields: Fields) -> Response:
    passkey = {"state": fields.get("state", ""), "credential": _read_credential(fields)}
    passkey_result = await visit.call("auth_passkey_add", challenge=fields.get("challenge", ""), **passkey)
    return visit.leave(passkey_result["signed_in"])


async def _sign_in_by_passkey(visit: Visit, fields: Fields) -> Response:
    passkey = {"state": fields.get("state", ""), "credential": _read_credential(fields)}
    return await go_on(visit, await visit.call("auth_passkey_sign_in", **passkey))


def ask_for_code(visit: Visit, signed_in: Mapping[str, Any]) -> Response:
    """Asks somebody who has signed up for the code of the mail that confirms the address. It can wait."""
    return visit.render("verify", ticket=_seal(visit, signed_in))


async def _verify(visit: Visit, fields: Fields) -> Response:
    signed_in = _open(visit, fields)
    if not fields.get("later"):
        code = fields.get("code", "").strip()
        await visit.call("auth_verify_email", email=fields.get("email", ""), code=code)
    return visit.leave(signed_in)


async def _offer(visit: Visit, fields: Fields) -> Response:
    signed_in = _open(visit, fields)
    return await _offer_passkey(visit, signed_in) if visit.wish == "passkey" else visit.leave(signed_in)


async def _offer_passkey(visit: Visit, signed_in: Mapping[str, Any], error: BaobabError | None = None) -> Response:
    caller = await _identify(visit, signed_in)
    ceremony = await visit.call_as(caller, "auth_passkey_options", origin=visit.origin)
    return visit.render("register", error, ticket=_seal(visit, signed_in), ceremony=ceremony)


async def _register(visit: Visit, fields: Fields) -> Response:
    signed_in = _open(visit, fields)
    if fields.get("credential"):
        passkey = {"state": fields.get("state", ""), "credential": _read_credential(fields)}
        await visit.call_as(await _identify(visit, signed_in), "auth_passkey_add", **passkey)
    return visit.leave(signed_in)


STEPS: dict[str, Callable[[Visit, Fields], Awaitable[Response]]] = {
    "second-factor": _take_code,
    "enrol": _take_first_code,
    "enrol-passkey": _make_second_factor,
    "passkey": _sign_in_by_passkey,
    "offer": _offer,
    "register": _register,
    "verify": _verify,
}


async def _identify(visit: Visit, signed_in: Mapping[str, Any]) -> Caller:
    return await visit.registry.services.credentials.caller(f"Bearer {signed_in['access_token']}".encode())


def _seal(visit: Visit, signed_in: Mapping[str, Any]) -> str:
    """Seals tokens for the page's own form, which holds them while the browser creates a passkey."""
    return visit.registry.services.vault.seal(json.dumps(signed_in).encode(), f"{_TICKET}{visit.app_id}")


def _open(visit: Visit, fields: Fields) -> Mapping[str, Any]:
    try:
        ticket = visit.registry.services.vault.open(fields.get("ticket", ""), f"{_TICKET}{visit.app_id}")
    except SecretUnreadable as exc:
        raise Unauthenticated("This form has expired.", remediation="Sign in again.") from exc
    signed_in: Mapping[str, Any] = json.loads(ticket)
    return signed_in


def _read_credential(fields: Fields) -> Any:
    """Parses a passkey's answer, which the page's script has put into the form. Raises BadRequest."""
    try:
        return json.loads(fields.get("credential", ""))
    except (ValueError, RecursionError) as exc:
        raise BadRequest("The passkey's answer cannot be read.") from exc


def _describe_secret(uri: str) -> dict[str, Any]:
    """Returns the forms in which the page shows an authenticator app's secret: a picture to scan, and text to type."""
    import segno  # noqa: PLC0415 - few sign-ins set up an authenticator app

    uri = uri[:_LONGEST_URI]
    secret = parse_qs(urlsplit(uri).query).get("secret", [""])[0]
    spaced_secret = " ".join(secret[start : start + 4] for start in range(0, len(secret), 4))
    picture = segno.make(uri, micro=False).svg_data_uri(scale=4, light="#fff")
    return {"uri": uri, "secret": spaced_secret, "qr_code": picture}
