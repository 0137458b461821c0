"""The second factor of a sign-in: codes of an authenticator app, recovery codes, and passkeys.

A sign-in whose user needs one answers a challenge in place of tokens. The challenge is good once, for ten minutes, and
is kept as a digest. Whoever has it has shown the first factor.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from baobab.storage.secrets import digest_token
from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import BaobabError, Call, RateLimited
from baobab.tools.users import totp
from baobab.tools.users.errors import ChallengeOver, FactorExists, FactorNotFound, WrongFactorCode
from baobab.tools.users.schemas import Challenged, FactorMethod, SecondFactor
from baobab.tools.users.settings import find_settings
from baobab.tools.users.tables import (
    FREEZES,
    user_challenges,
    user_passkeys,
    user_recovery_codes,
    user_totp,
)

PREFIX = "bb_2f_"
LIFETIME = timedelta(minutes=10)
MOST_WRONG, WINDOW = 5, timedelta(minutes=15)
"""Wrong codes for one user, from anywhere, after which further ones must wait. Only who has shown the first factor can
send them; recovery codes and passkeys, which nobody guesses, go on."""
RECOVERY_CODES = 10
_MOST_CHALLENGES = 10
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_GROUPS, _GROUP = 4, 5

_totp, _challenges = user_totp.c, user_challenges.c


@dataclass(frozen=True, slots=True)
class Factors:
    """The second factors that a user has set up. totp: whether a code of it was shown."""

    totp: bool
    recovery_codes: int
    passkeys: int

    def list_methods(self) -> list[FactorMethod]:
        """Returns the ways by which the user can answer a challenge; none where the user has to set one up first."""
        methods: list[FactorMethod] = ["totp"] if self.totp else []
        methods += ["recovery_code"] if self.totp and self.recovery_codes else []
        return [*methods, "passkey"] if self.passkeys else methods


async def find_factors(execute: Execute, app_id: str, user_id: str) -> Factors:
    """Returns what a user has set up."""
    is_confirmed = (_totp.app_id == app_id, _totp.user_id == user_id, _totp.confirmed_at.is_not(None))
    codes, keys = user_recovery_codes.c, user_passkeys.c
    is_unused = (codes.app_id == app_id, codes.user_id == user_id, codes.used_at.is_(None))
    of_user = (keys.app_id == app_id, keys.user_id == user_id)
    columns = (
        select(func.count()).select_from(table).where(*conditions).scalar_subquery()
        for table, conditions in ((user_totp, is_confirmed), (user_recovery_codes, is_unused), (user_passkeys, of_user))
    )
    has_totp, codes_left, passkeys = (await execute(select(*columns))).one()
    return Factors(bool(has_totp), codes_left, passkeys)


async def describe_factors(execute: Execute, app_id: str, user_id: str) -> SecondFactor:
    """Returns what a user has set up, as it is shown."""
    factors = await find_factors(execute, app_id, user_id)
    is_required = (await find_settings(execute, app_id))["second_factor"] == "required"
    codes_left = factors.recovery_codes if factors.totp else 0
    return {"totp": factors.totp, "recovery_codes": codes_left, "passkeys": factors.passkeys, "required": is_required}


async def delete_factors(execute: Execute, app_id: str, user_ids: Any) -> None:
    """Deletes all that users have set up, and the challenges that wait for it. user_ids: a list, or a query."""
    for table in (user_totp, user_recovery_codes, user_passkeys, user_challenges):
        await execute(delete(table).where(table.c.app_id == app_id, table.c.user_id.in_(user_ids)))


async def delete_challenges(execute: Execute, app_id: str, user_id: str) -> None:
    """Voids the sign-ins of a user that wait for the second factor."""
    conditions = (_challenges.app_id == app_id, _challenges.user_id == user_id, _challenges.used_at.is_(None))
    await execute(delete(user_challenges).where(*conditions))


async def challenge_user(
    call: Call, execute: Execute, user: dict[str, Any], method: str, event: str, *, is_new: bool
) -> Challenged | None:
    """Stores and returns a challenge, if the user must show a second factor; otherwise None."""
    app_id, now = call.require_app().id, call.now
    factors = await find_factors(execute, app_id, user["id"])
    if not factors.totp and (await find_settings(execute, app_id))["second_factor"] == "optional":
        return None
    methods = factors.list_methods()
    open_challenges = (_challenges.app_id == app_id, _challenges.user_id == user["id"], _challenges.used_at.is_(None))
    newest = (
        select(_challenges.digest)
        .where(*open_challenges)
        .order_by(_challenges.created_at.desc())
        .limit(_MOST_CHALLENGES - 1)
    )
    await execute(delete(user_challenges).where(*open_challenges, _challenges.digest.not_in(newest)))
    challenge = PREFIX + secrets.token_urlsafe(32)
    row = {"app_id": app_id, "digest": digest_token(challenge), "user_id": user["id"], "method": method}
    row |= {"event": event, "is_new": is_new, "created_at": now, "expires_at": now + LIFETIME}
    await execute(insert(user_challenges), row)
    seconds = int(LIFETIME.total_seconds())
    return {"challenge": challenge, "methods": methods, "enrol": not methods, "expires_in": seconds}


async def find_challenge(execute: Execute, call: Call, challenge: str) -> Any:
    """Returns the row of a challenge that can be answered now. Raises ChallengeOver."""
    conditions = (_challenges.app_id == call.require_app().id, _challenges.digest == digest_token(challenge))
    row = (await execute(select(user_challenges).where(*conditions))).first()
    if row is None or row.used_at is not None or row.expires_at <= call.now:
        raise ChallengeOver
    return row


async def read_challenge(call: Call, challenge: str) -> Any:
    """Does the same in a transaction that only reads, before the call's own begins."""
    async with call.stores.database.reading() as connection:
        return await find_challenge(connection.execute, call, challenge)


async def spend_challenge(execute: Execute, row: Any, now: datetime) -> None:
    """Uses up a challenge. Raises ChallengeOver if another call was quicker."""
    is_unused = (_challenges.app_id == row.app_id, _challenges.digest == row.digest, _challenges.used_at.is_(None))
    if not (await execute(update(user_challenges).where(*is_unused).values(used_at=now))).rowcount:
        raise ChallengeOver


async def enrol_totp(call: Call, execute: Execute, user_id: str) -> str:
    """Stores and returns a new secret of a user, which counts when a code of it was shown. Raises FactorExists."""
    app_id, secret = call.require_app().id, totp.create_secret()
    row = {"secret": call.services.vault.seal(secret.encode(), _seal_context(user_id)), "created_at": call.now}
    row |= {"confirmed_at": None, "last_period": None, "wrong_tries": 0, "wrong_since": None}
    upsert = build_upsert(call.stores.database.dialect, user_totp).values(app_id=app_id, user_id=user_id, **row)
    is_pending = _totp.confirmed_at.is_(None)
    # The count of wrong codes stays: otherwise enrolling again would give further tries.
    new_values = {name: row[name] for name in ("secret", "created_at")}
    upsert_result = await execute(
        upsert.on_conflict_do_update(index_elements=["app_id", "user_id"], set_=new_values, where=is_pending)
    )
    if not upsert_result.rowcount:
        raise FactorExists
    return secret


async def try_code(call: Call, user_id: str, code: str, *, confirms: bool = False, challenge: Any = None) -> None:
    """Uses up a code of a user: six digits of the authenticator app, or a recovery code.

    Raises WrongFactorCode, FactorNotFound, RateLimited, and ChallengeOver.

    A wrong try must count although the call is refused: so this is a transaction of its own, before the call's begins.
    confirms: whether it is the first code, which confirms the secret. challenge: the row of a challenge that the code
    answers, which is used up by it.
    """
    app_id = call.require_app().id
    plain_code = "".join(character for character in code.lower() if character.isalnum())
    async with call.stores.database.writing(lock=app_id) as connection:
        await FREEZES.require_thawed(connection.execute, app_id)
        if (
            confirms
            and challenge is not None
            and (await find_factors(connection.execute, app_id, user_id)).list_methods()
        ):
            # A passkey was quicker; this challenge has shown a password only.
            refusal: BaobabError | None = FactorExists()
        elif plain_code.isdigit() or confirms:
            refusal = await _try_totp(call, connection.execute, user_id, plain_code, confirms=confirms)
        else:
            refusal = await _try_recovery_code(connection.execute, app_id, user_id, plain_code, call.now)
        if refusal is None and challenge is not None:
            await spend_challenge(connection.execute, challenge, call.now)
    if refusal is not None:
        raise refusal


async def _try_totp(call: Call, execute: Execute, user_id: str, code: str, *, confirms: bool) -> BaobabError | None:
    app_id, now = call.require_app().id, call.now
    conditions = (_totp.app_id == app_id, _totp.user_id == user_id)
    row: Any = (await execute(select(user_totp).where(*conditions).with_for_update())).first()
    if row is None or (row.confirmed_at is None) != confirms:
        return FactorNotFound() if row is None or not confirms else FactorExists()
    is_counting = row.wrong_since is not None and now - row.wrong_since < WINDOW
    if is_counting and row.wrong_tries >= MOST_WRONG:
        wait = (row.wrong_since + WINDOW - now).total_seconds()
        return RateLimited(max(1, int(wait)), MOST_WRONG, int(WINDOW.total_seconds()))
    secret = call.services.vault.open(row.secret, _seal_context(user_id)).decode()
    period = totp.find_period(secret, code, now, row.last_period)
    if period is None:
        tries, since = (row.wrong_tries + 1, row.wrong_since) if is_counting else (1, now)
        await execute(update(user_totp).where(*conditions).values(wrong_tries=tries, wrong_since=since))
        return WrongFactorCode()
    changes: dict[str, Any] = {"last_period": period, "wrong_tries": 0, "wrong_since": None}
    if confirms:
        changes["confirmed_at"] = now
    await execute(update(user_totp).where(*conditions).values(**changes))
    return None


async def _try_recovery_code(
    execute: Execute, app_id: str, user_id: str, code: str, now: datetime
) -> BaobabError | None:
    columns = user_recovery_codes.c
    conditions = (columns.app_id == app_id, columns.user_id == user_id, columns.used_at.is_(None))
    digest = _digest(app_id, user_id, code)
    update_result = await execute(
        update(user_recovery_codes).where(*conditions, columns.digest == digest).values(used_at=now)
    )
    return None if update_result.rowcount else WrongFactorCode()


async def renew_recovery_codes(execute: Execute, app_id: str, user_id: str) -> list[str]:
    """Stores new recovery codes of a user in place of all earlier ones, and returns them."""
    of_user = (user_recovery_codes.c.app_id == app_id, user_recovery_codes.c.user_id == user_id)
    await execute(delete(user_recovery_codes).where(*of_user))
    codes = [
        "-".join("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP)) for _ in range(_GROUPS))
        for _ in range(RECOVERY_CODES)
    ]
    key = {"app_id": app_id, "user_id": user_id}
    rows = [{**key, "digest": _digest(app_id, user_id, code.replace("-", ""))} for code in codes]
    await execute(insert(user_recovery_codes), rows)
    return codes


async def remove_totp(execute: Execute, app_id: str, user_id: str) -> None:
    """Removes a user's authenticator app and recovery codes."""
    for table in (user_totp, user_recovery_codes):
        await execute(delete(table).where(table.c.app_id == app_id, table.c.user_id == user_id))


def _digest(app_id: str, user_id: str, code: str) -> str:
    # Nobody finds a code of 98 bits from its digest.
    return digest_token("\0".join((app_id, user_id, code)))


def _seal_context(user_id: str) -> str:
    return f"user_totp.secret:{user_id}"
