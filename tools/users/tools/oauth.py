"""/auth/{app_id}/oauth: sign-in with an OAuth provider, by way of the user's browser."""

from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

from pydantic import Field
from sqlalchemy import insert, select

from baobab.storage.sql.database import Unit
from baobab.tools.core import EVERYBODY, AppId, Audit, Call, NotSecret, PerAddress, Rest, Text
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.users.admission import admit
from baobab.tools.users.anonymous import give_address, open_ticket
from baobab.tools.users.errors import (
    AddressInUse,
    NotAnonymous,
    OAuthFailed,
    ProviderNotFound,
    RedirectRefused,
    SignUpClosed,
    UserBanned,
    UserExists,
)
from baobab.tools.users.oauth_flow import ProviderClient, begin_flow, resume_flow
from baobab.tools.users.provider_kinds import ProviderUser
from baobab.tools.users.providers import ProviderAccount, build_callback, find_row, open_account
from baobab.tools.users.redirects import RedirectTo, build_address, is_redirect_allowed
from baobab.tools.users.rows import build_user, find_user, insert_user
from baobab.tools.users.schemas import Challenged, SentOn, SignedIn
from baobab.tools.users.sign_in import sign_in
from baobab.tools.users.tables import FREEZES, user_identities
from baobab.tools.users.tools.passwords import WINDOW
from baobab.tools.users.tools.providers import Slug
from baobab.tools.users.toolset import auth

Code = Annotated[str, Text(3000), NotSecret("it is good for one exchange, with this client's secret")]
State = Annotated[str, Text(200)]
Reason = Annotated[str, Text(500)]
PostedUser = Annotated[str, Text(4000)]
Ticket = Annotated[str, Text(1000, 1, r"^[A-Za-z0-9._=-]+$")]
Host = Annotated[str, Text(300), Field(description="The host name that the browser used. The server fills it in.")]
Cookies = Annotated[str, Text(16_000), Field(description="The browser's cookies. The server fills them in.")]

_LIMIT = PerAddress(60, WINDOW, per_app=True)
_AUDIT = Audit("oauth_login", category="auth", action="create", resource="session")
_RAISES = (
    ProviderNotFound,
    OAuthFailed,
    AddressInUse,
    UserBanned,
    UserExists,
    NotAnonymous,
    SignUpClosed,
    PlanLimitReached,
)


def _status(result: Any) -> int:
    return 302 if "location" in result else 200


_CALLBACK = Rest(status=_status, statuses=(200, 302), form=True, from_headers={"cookies": "cookie"})


@auth.tool(
    "GET /oauth/{provider}",
    access=EVERYBODY,
    effect="read",
    raises=(ProviderNotFound, RedirectRefused, NotAnonymous),
    limit=_LIMIT,
    rest=Rest(status=302, from_headers={"host": "host"}),
)
async def auth_oauth_start(
    call: Call,
    app_id: AppId,
    provider: Slug,
    redirect_to: RedirectTo | None = None,
    upgrade: Ticket | None = None,
    host: Host = "",
) -> SentOn:
    """Send the browser to a provider's sign-in. It comes back signed in.

    redirect_to: where the browser goes in the end, with `access_token`, `refresh_token`, `expires_in` and `token_type`
        in the query. Its origin must be among the app's allowed origins, or be this machine. Left out, the tokens are
        answered as JSON.
    upgrade: the ticket of an anonymous user (op:auth_upgrade_oauth), who keeps the id and gets the identity.
    """
    if redirect_to is not None and not is_redirect_allowed(call, redirect_to):
        raise RedirectRefused
    account = await _load_account(call, app_id, provider)
    if host and host.lower() == _name_own_host(call):
        # The provider sends the browser back to the server's own name, and only a cookie of that name comes along.
        further = {"redirect_to": redirect_to, "upgrade": upgrade}
        query = urlencode({name: value for name, value in further.items() if value is not None})
        address = f"{call.services.options.base_url}/auth/{app_id}/oauth/{provider}" + (f"?{query}" if query else "")
        call.headers = [(b"location", address.encode()), (b"cache-control", b"no-store")]
        return {"location": address}
    user_id = None if upgrade is None else await open_ticket(call, upgrade)
    address, cookie = begin_flow(call, account, redirect_to, user_id)
    call.headers = [(b"location", address.encode()), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
    return {"location": address}


@auth.tool(
    "GET /oauth/{provider}/callback",
    access=EVERYBODY,
    effect="write",
    raises=_RAISES,
    limit=_LIMIT,
    audit=_AUDIT,
    rest=_CALLBACK,
)
async def auth_oauth_callback(
    call: Call,
    app_id: AppId,
    provider: Slug,
    code: Code | None = None,
    state: State | None = None,
    error: Reason | None = None,
    cookies: Cookies = "",
) -> SignedIn | Challenged | SentOn:
    """Sign in the user whom a provider sends back.

    code: what the provider's tokens are exchanged for.
    state: which flow the browser comes back from.
    error: why the provider did not sign the user in.
    """
    return await _finish(call, app_id, provider, code, state, error, cookies, None)


@auth.tool(
    "POST /oauth/{provider}/callback",
    access=EVERYBODY,
    effect="write",
    raises=_RAISES,
    limit=_LIMIT,
    audit=_AUDIT,
    rest=_CALLBACK,
)
async def auth_oauth_callback_form(
    call: Call,
    app_id: AppId,
    provider: Slug,
    code: Code | None = None,
    state: State | None = None,
    error: Reason | None = None,
    user: PostedUser | None = None,
    cookies: Cookies = "",
) -> SignedIn | Challenged | SentOn:
    """Sign in the user whom a provider sends back with a form, as Apple does.

    code: what the provider's tokens are exchanged for.
    state: which flow the browser comes back from.
    error: why the provider did not sign the user in.
    user: JSON with the user's name, at the first sign-in.
    """
    return await _finish(call, app_id, provider, code, state, error, cookies, user)


async def _finish(
    call: Call,
    app_id: str,
    provider: str,
    code: str | None,
    state: str | None,
    error: str | None,
    cookies: str,
    posted_user: str | None,
) -> SignedIn | Challenged | SentOn:
    flow, cookie_removal = resume_flow(call, provider, state, cookies)
    if error is not None:
        printable = "".join(c for c in error if c.isprintable())[:200]
        raise OAuthFailed(f"OAuth error: {printable}")
    if not code:
        raise OAuthFailed("OAuth error: missing code")
    account = await _load_account(call, app_id, provider)
    client = call.services.of(ProviderClient)
    provider_user = await client.identify(account, flow, code, build_callback(call, provider), posted_user)
    if flow.upgrade is None:
        user, is_new = await _find_or_create(call, app_id, provider, provider_user)
    else:
        user, is_new = await _upgrade(call, app_id, provider, provider_user, flow.upgrade), True
    # Somebody else may have begun the flow with a ticket of theirs: then they are out, and the user is this person's.
    ends_others = flow.upgrade is not None
    signed_in = await sign_in(call, user, provider, "oauth_login", is_new=is_new, ends_others=ends_others)
    call.headers = [(b"set-cookie", cookie_removal.encode()), (b"cache-control", b"no-store")]
    if flow.redirect_to is None:
        return signed_in
    location = build_address(call, flow.redirect_to, signed_in)
    # So that the address with the tokens is not told to whatever the page loads.
    call.headers += [(b"location", location.encode()), (b"referrer-policy", b"no-referrer")]
    return {"location": location}


def _name_own_host(call: Call) -> str:
    """Returns the app's own host, with the port, as a browser names it."""
    port = urlsplit(call.services.options.base_url).port
    return f"{call.require_app().subdomain}.{call.services.options.base_domain}".lower() + (f":{port}" if port else "")


async def _load_account(call: Call, app_id: str, provider: str) -> ProviderAccount:
    async with call.stores.database.reading() as connection:
        row = await find_row(connection.execute, app_id, provider)
    if not row.enabled:
        raise ProviderNotFound
    return open_account(call.services.vault, row)


async def _find_or_create(
    call: Call, app_id: str, provider: str, provider_user: ProviderUser
) -> tuple[dict[str, Any], bool]:
    """Returns the user whom a provider's identity belongs to, and whether the user was made now.

    An identity that is new is attached to the user of its address only if both the provider and the user have verified
    that address: whoever merely claims it must not get into the account of somebody else. Raises AddressInUse.

    In a transaction of its own, before the call's begins: signing in makes a key pair when it is the very first.
    """
    email = _name_address(provider_user, provider)
    key = (user_identities.c.app_id == app_id, user_identities.c.provider == provider)
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        query = select(user_identities.c.user_id).where(*key, user_identities.c.provider_uid == provider_user.uid)
        user_id = (await unit.execute(query)).scalar()
        user = None if user_id is None else await find_user(unit.execute, app_id, user_id=user_id)
        if user is not None:
            return user, False
        user = await find_user(unit.execute, app_id, email=email)
        is_new = user is None
        if user is None:
            further = {
                "provider_uid": provider_user.uid,
                "email_verified": provider_user.email_verified,
                "avatar_url": provider_user.avatar_url,
            }
            user = build_user(call.services, app_id, email, provider, display_name=provider_user.name, **further)
            user |= await admit(
                unit.execute, call.require_app(), email, call.now, proves_address=provider_user.email_verified
            )
            await insert_user(unit, user)
        elif not (provider_user.email_verified and user["email_verified"]):
            raise AddressInUse
        await _attach_identity(call, unit, user, provider, provider_user)
    return user, is_new


async def _upgrade(call: Call, app_id: str, provider: str, provider_user: ProviderUser, user_id: str) -> dict[str, Any]:
    """Gives an anonymous user the identity and address of somebody at a provider, and returns the user.

    Raises AddressInUse where another user has one of them, and NotAnonymous.
    """
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        identity = (user_identities.c.app_id == app_id, user_identities.c.provider == provider)
        query = select(user_identities.c.user_id).where(*identity, user_identities.c.provider_uid == provider_user.uid)
        if (await unit.execute(query)).first() is not None:
            raise AddressInUse("A user of the app has this identity already.")
        further = {
            "provider": provider,
            "provider_uid": provider_user.uid,
            "email_verified": provider_user.email_verified,
        }
        further |= {"display_name": provider_user.name, "avatar_url": provider_user.avatar_url}
        email = _name_address(provider_user, provider)
        further |= await admit(
            unit.execute, call.require_app(), email, call.now, proves_address=provider_user.email_verified
        )
        try:
            user = await give_address(unit, app_id, user_id, email, **further)
        except UserExists as exc:
            raise AddressInUse from exc
        await _attach_identity(call, unit, user, provider, provider_user)
    return user


async def _attach_identity(
    call: Call, unit: Unit, user: dict[str, Any], provider: str, provider_user: ProviderUser
) -> None:
    identity = {
        "app_id": user["app_id"],
        "provider": provider,
        "provider_uid": provider_user.uid,
        "user_id": user["id"],
    }
    await unit.execute(insert(user_identities), {**identity, "email": provider_user.email, "created_at": call.now})


def _name_address(provider_user: ProviderUser, provider: str) -> str:
    return provider_user.email or f"{provider_user.uid}@users.noreply.{provider}.local"
