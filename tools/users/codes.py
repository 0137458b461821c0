"""One-time codes: six digits that prove that somebody reads the mail of an address.

A newer code takes the place of the older one of the same purpose; five wrong tries void a code. Codes are stored as
keyed digests, because six digits are found from a plain one in no time.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import select, update

from baobab.storage.secrets import Vault, digest_token
from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Call
from baobab.tools.users.errors import CodeExpired, CodeUsed, WrongCode
from baobab.tools.users.tables import FREEZES, user_codes

Purpose = Literal["verify_email", "magic_link", "reset_password", "add_address", "app_invitation"]

DIGITS = 6
MOST_TRIES = 5


@dataclass(frozen=True, slots=True)
class CodeKind:
    """The name of a code in errors, and its lifetime."""

    name: str
    lifetime: timedelta


KINDS: dict[Purpose, CodeKind] = {
    "verify_email": CodeKind("verification code", timedelta(hours=24)),
    "magic_link": CodeKind("sign-in code", timedelta(minutes=15)),
    "reset_password": CodeKind("reset code", timedelta(hours=1)),
    "add_address": CodeKind("address code", timedelta(minutes=15)),
    "app_invitation": CodeKind("invitation", timedelta(days=7)),
}


_KEPT = "This installation sends no mail: those who run the app read the code in its outbox."


def say_sent(call: Call, message: str) -> str:
    """Returns what is said of a code that was sent. Warns of where it is if no mail leaves this installation."""
    if not call.services.mailer.delivers:
        call.warn(_KEPT)
    return message


@dataclass(frozen=True, slots=True)
class IssuedCode:
    """A code and the secret of a link, either of which is good once, for both."""

    code: str
    link: str
    expires_at: datetime


async def issue_code(
    unit: Unit,
    vault: Vault,
    app_id: str,
    email: str,
    purpose: Purpose,
    now: datetime,
    redirect_to: str | None = None,
) -> IssuedCode:
    """Stores a new code of an address in place of the one before. redirect_to: where its link leads in the end."""
    code, link = f"{secrets.randbelow(10**DIGITS):0{DIGITS}}", secrets.token_urlsafe(32)
    expires_at = now + KINDS[purpose].lifetime
    row = {"digest": _digest(vault, app_id, email, purpose, code), "tries": 0, "created_at": now}
    row |= {"expires_at": expires_at, "used_at": None}
    row |= {"link_digest": digest_token(link), "redirect_to": redirect_to}
    key = {"app_id": app_id, "email": email, "purpose": purpose}
    upsert = build_upsert(unit.database.dialect, user_codes).values(**key, **row)
    await unit.execute(upsert.on_conflict_do_update(index_elements=list(key), set_=row))
    return IssuedCode(code, link, expires_at)


async def use_code(call: Call, email: str, purpose: Purpose, code: str) -> None:
    """Uses up the code of an address. Raises WrongCode, CodeUsed or CodeExpired.

    A wrong try must count although the call is refused: so this is a transaction of its own, before the call's begins.
    The answer is the same for an address that has no code; one that is not known has a code that nobody gets, so that a
    try that counts is written for it, too.
    """
    app_id = call.require_app().id
    digest = _digest(call.services.vault, app_id, email, purpose, code)
    async with call.stores.database.writing(lock=app_id) as connection:
        await FREEZES.require_thawed(connection.execute, app_id)
        refusal = await _try_code(connection.execute, app_id, email, purpose, digest, call.now)
    if refusal is not None:
        raise _word(refusal, purpose)


async def find_link(call: Call, link: str) -> Any:
    """Returns the row of the code that a link stands for. Raises WrongCode, CodeUsed or CodeExpired."""
    async with call.stores.database.reading() as connection:
        row = (await connection.execute(_select_link(call.require_app().id, link))).first()
    _require_fresh(row, call.now)
    return row


async def use_link(call: Call, link: str, purpose: Purpose) -> str:
    """Uses up the code that a link stands for, and returns its address. Raises WrongCode, CodeUsed or CodeExpired.

    Nobody guesses a link, so wrong codes that strangers have tried do not void it.
    """
    app_id = call.require_app().id
    async with call.stores.database.writing(lock=app_id) as connection:
        await FREEZES.require_thawed(connection.execute, app_id)
        row: Any = (await connection.execute(_select_link(app_id, link).with_for_update())).first()
        if row is not None and row.purpose != purpose:
            row = None
        _require_fresh(row, call.now)
        conditions = (user_codes.c.app_id == app_id, user_codes.c.link_digest == row.link_digest)
        await connection.execute(update(user_codes).where(*conditions).values(used_at=call.now))
    return str(row.email)


def _select_link(app_id: str, link: str) -> Any:
    return select(user_codes).where(user_codes.c.app_id == app_id, user_codes.c.link_digest == digest_token(link))


def _require_fresh(row: Any, now: datetime) -> None:
    if row is None:
        raise WrongCode("This link is not valid. Perhaps a newer mail was sent.")
    if row.used_at is not None:
        raise _word(CodeUsed, row.purpose)
    if row.expires_at <= now:
        raise _word(CodeExpired, row.purpose)


def _word(refusal: type[WrongCode], purpose: Purpose) -> WrongCode:
    name = KINDS[purpose].name
    words = {WrongCode: f"Invalid {name}", CodeUsed: f"{name.capitalize()} already used"}
    return refusal(words.get(refusal, f"{name.capitalize()} expired"))


async def _try_code(
    execute: Execute, app_id: str, email: str, purpose: str, digest: str, now: datetime
) -> type[WrongCode] | None:
    key = (user_codes.c.app_id == app_id, user_codes.c.email == email, user_codes.c.purpose == purpose)
    row: Any = (await execute(select(user_codes).where(*key).with_for_update())).first()
    if row is None or row.tries >= MOST_TRIES:
        return WrongCode
    if not hmac.compare_digest(row.digest, digest):
        await execute(update(user_codes).where(*key).values(tries=row.tries + 1))
        return WrongCode
    if row.used_at is not None:
        return CodeUsed
    if row.expires_at <= now:
        return CodeExpired
    await execute(update(user_codes).where(*key).values(used_at=now))
    return None


def _digest(vault: Vault, app_id: str, email: str, purpose: str, code: str) -> str:
    text = "\0".join((app_id, email, purpose, code))
    return hmac.new(vault.derive("user code"), text.encode(), hashlib.sha256).hexdigest()
