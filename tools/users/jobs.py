"""Jobs of users: codes are mailed by one, so that an answer takes as long whether or not an address is known."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update

from baobab.runtime.jobs.job_slots import network_wait
from baobab.storage.secrets import digest_token
from baobab.storage.sql.database import Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppKey, AppNotFound, BaobabError, Call, Job, RateLimited, RetryLater, Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.context import RequestContext
from baobab.tools.core.jobs import Event
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.core.mail import Mail
from baobab.tools.core.stores import Stores
from baobab.tools.users.admission import admit, find_invitation
from baobab.tools.users.codes import Purpose, issue_code
from baobab.tools.users.errors import SignUpClosed
from baobab.tools.users.events import AUTHENTICATED
from baobab.tools.users.rows import build_user, delete_users, find_user
from baobab.tools.users.tables import (
    FREEZES,
    user_challenges,
    user_codes,
    user_hook_calls,
    user_invitations,
    user_mcp_codes,
    user_sessions,
    user_settings,
    users,
)
from baobab.tools.users.toolset import auth

_MOST_CODES, _WINDOW = 5, 900
"""Codes that are mailed to one address of an app, whoever asks for them."""
_MOVING_SECONDS = 5.0
_HOOK_MS = 10_000
"""How long a post-auth hook may take."""
_KEPT = timedelta(days=1)
HOOK_CALLS_KEPT = timedelta(days=6)
"""How long hook calls are kept beyond their first day."""
_SWEPT = 500
"""The most anonymous users that are deleted in one transaction."""


async def request_code(call: Call, email: str, purpose: Purpose, redirect_to: str | None = None) -> None:
    """Asks for a code to be mailed. What is written is the same whether or not the address is known.

    redirect_to: where a link in the mail leads in the end; without it, the mail has a code only.
    """
    call.services.liveness.require_live()
    app = call.require_app()
    arguments = {"app_id": app.id, "email": email, "purpose": purpose}
    if redirect_to is not None:
        arguments["redirect_to"] = redirect_to
    async with FREEZES.writing(call) as unit:
        await call.services.jobs.enqueue(unit, auth_mail_code.__name__, arguments, tenant=app.organisation_id)


async def send_code(
    services: Services, unit: Unit, app_id: str, email: str, purpose: Purpose, redirect_to: str | None = None
) -> None:
    """Stores a new code of an address and mails it, both in the unit. An invitation has a link in any case, and so has
    the confirmation of an address.
    """
    now = services.clock.now()
    issued_code = await issue_code(unit, services.vault, app_id, email, purpose, now, redirect_to)
    values = {"code": issued_code.code}
    if redirect_to is not None or purpose in ("app_invitation", "verify_email"):
        values["link"] = f"{services.options.base_url}/auth/{app_id}/login-page?link={issued_code.link}"
    mail = Mail(to=email, template=purpose, values=values, app_id=app_id, expires_at=issued_code.expires_at)
    await services.mailer.send(unit, mail)


@auth.job(cancel=True)
async def auth_mail_code(job: Job, app_id: str, email: str, purpose: Purpose, redirect_to: str | None = None) -> None:
    """Mails a code to an address of an app. Asked to sign somebody in who is not known, it makes the user."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
        # However many strangers ask in the name of one address, it gets only so many mails.
        subject = digest_token(f"{app_id}:{email}:{purpose}")
        await resolve_answer(services.limits.spend("user_codes", subject, _MOST_CODES, _WINDOW))
    except (AppNotFound, RateLimited):
        return
    if services.stores_of(app.region).database is not job.database:
        # The app has moved since then, and with it the place of its mails.
        async with services.stores_of(app.region).database.writing_unit(lock=app_id) as unit:
            await _mail_code(services, unit, app, email, purpose, redirect_to)
        return
    async with job.writing(last=True, lock=app_id) as unit:
        await _mail_code(services, unit, app, email, purpose, redirect_to)


async def _mail_code(
    services: Services, unit: Unit, app: App, email: str, purpose: Purpose, redirect_to: str | None
) -> None:
    app_id = app.id
    if await FREEZES.is_frozen(unit.execute, app_id):
        raise RetryLater(_MOVING_SECONDS, "the app is being moved")
    user = await find_user(unit.execute, app_id, email=email)
    now = services.clock.now()
    # Whoever has the address learns from its own mail whether it has a user. Whoever is invited becomes one by the
    # code.
    gets_mail = purpose == "add_address" if user is None else user["banned_at"] is None
    if user is None and purpose == "magic_link":
        gets_mail = await find_invitation(unit.execute, app_id, email, now) is not None
        if not gets_mail:
            gets_mail = await _make_user(services, unit, app, email, now)
    if gets_mail:
        await send_code(services, unit, app_id, email, purpose, redirect_to)
    else:
        # A code that nobody gets: otherwise the time that a wrong try takes would tell that there is none.
        await issue_code(unit, services.vault, app_id, email, purpose, now)


async def _make_user(services: Services, unit: Unit, app: App, email: str, now: datetime) -> bool:
    """Makes a user of an address that has asked for a sign-in; returns whether the app takes new users."""
    try:
        invitation_columns = await admit(unit.execute, app, email, now, proves_address=False)
    except (SignUpClosed, PlanLimitReached):
        return False
    await unit.execute(insert(users), build_user(services, app.id, email, "magic_link", **invitation_columns))
    return True


@auth.job(on=AUTHENTICATED, drop=True)
async def auth_hook(job: Job, event: Event) -> None:
    """Calls the app's post-auth hook for a sign-in, once, and writes down what it is told."""
    services, app_id = job.services, event.app_id
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    database = services.stores_of(app.region).database
    async with services.database.reading() as connection:
        query = select(apps.c.auth_hook_function).where(apps.c.id == app.id)
        hook: str | None = (await connection.execute(query)).scalar()
    async with database.writing_unit(lock=app.id) as unit:
        if await FREEZES.is_frozen(unit.execute, app.id):
            raise RetryLater(_MOVING_SECONDS, "the app is being moved")
        row = {"app_id": app.id, "id": event.id, "event": event.data["event"], "payload": dict(event.data)}
        row |= {"status": "recorded" if hook is None else "called", "created_at": event.at}
        # An event may come twice, and a hook is never called twice for it: not even where this worker is lost.
        insertion = build_upsert(database.dialect, user_hook_calls).values(**row).on_conflict_do_nothing()
        is_new = bool((await unit.execute(insertion)).rowcount)
    if hook is None or not is_new:
        return
    status = "succeeded" if await _call_hook(job, app, hook, event) else "failed"
    async with database.writing(lock=app.id) as connection:
        is_it = (user_hook_calls.c.app_id == app.id, user_hook_calls.c.id == event.id)
        await connection.execute(update(user_hook_calls).where(*is_it).values(status=status))


async def _call_hook(job: Job, app: App, hook: str, event: Event) -> bool:
    """Calls the hook, and returns whether it succeeded. The log of the function says why it did not."""
    arguments: dict[str, Any] = {"app_id": app.id, "name": hook, "trigger": "auth_hook", "payload": dict(event.data)}
    arguments |= {"request_id": event.id, "timeout_ms": _HOOK_MS}
    context = RequestContext("job", job.id, base_url=job.services.options.base_url, brings_outside_text=True)
    try:
        async with network_wait():
            # The hook is the app's: no credential came, and it acts with the app's own right.
            caller = AppKey(app.id, app.id)
            result, _ = await job.registry.run(job.registry.find("functions_fire"), arguments, caller, context)
    except BaobabError:
        return False
    return result["error"] is None


@auth.job(every=3600.0, in_copies=True)
async def auth_prune(job: Job) -> None:
    """Deletes sessions, codes, challenges and invitations that have ended, a day after that."""
    before = job.services.clock.now() - _KEPT
    for stores in {id(stores.database): stores for stores in job.services.regions.values()}.values():
        async with stores.database.writing(lock=None, bulk=True) as connection:
            for table in (user_sessions, user_codes, user_mcp_codes, user_invitations, user_challenges):
                await connection.execute(delete(table).where(table.c.expires_at < before))
            is_expired = user_hook_calls.c.created_at < before - HOOK_CALLS_KEPT
            await connection.execute(delete(user_hook_calls).where(is_expired))


@auth.job(every=3600.0)
async def auth_sweep_anonymous(job: Job) -> None:
    """Deletes the anonymous users of an app that nobody has used for as many days as the app has set."""
    now = job.services.clock.now()
    for stores in {id(stores.database): stores for stores in job.services.regions.values()}.values():
        columns = (user_settings.c.app_id, user_settings.c.anonymous_days)
        async with stores.database.reading() as connection:
            apps = await connection.execute(select(*columns).where(user_settings.c.anonymous_days.is_not(None)))
            before = {row.app_id: now - timedelta(days=row.anonymous_days) for row in apps}
        for app_id, moment in before.items():
            while await _sweep_app(stores, app_id, moment) == _SWEPT:
                pass


async def _sweep_app(stores: Stores, app_id: str, before: datetime) -> int:
    """Deletes some of the anonymous users of an app that were last used before a moment; returns how many."""
    conditions = (users.c.app_id == app_id, users.c.email.is_(None), users.c.last_sign_in_at < before)
    async with stores.database.writing(lock=app_id, bulk=True) as connection:
        if await FREEZES.is_frozen(connection.execute, app_id):
            return 0
        user_ids = [row.id for row in await connection.execute(select(users.c.id).where(*conditions).limit(_SWEPT))]
        await delete_users(connection.execute, app_id, user_ids)
    return len(user_ids)
