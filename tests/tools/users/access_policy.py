"""The callers that may call the tools of users, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from sqlalchemy import delete, insert

from baobab.runtime.oauth.requests import AuthorizationRequest
from baobab.tools.users.codes import Purpose, issue_code
from baobab.tools.users.mcp_requests import seal_request
from baobab.tools.users.tables import user_sessions, user_totp
from baobab.tools.users.totp import compute_code, create_secret
from tests.conftest import ADDRESS
from tests.soft_authenticator import SoftAuthenticator
from tests.tools.access import ADMINS, INTERNAL, PASSWORD, PUBLIC, RUNNERS, Caller, World
from tests.users import mint_user_token

# A token of another app is a stranger's, and accounts and keys are no users.
USERS = "401 403 403 ok  401 403 403 403 403 403 403 403 403 403"

POLICY = {
    "auth_signup": PUBLIC,
    "auth_login": PUBLIC,
    "auth_verify_email": PUBLIC,
    "auth_forgot_password": PUBLIC,
    "auth_reset_password": PUBLIC,
    "auth_magic_link": PUBLIC,
    "auth_magic_link_verify": PUBLIC,
    "auth_refresh": PUBLIC,
    "auth_logout": USERS,
    "auth_sessions": USERS,
    "auth_session_end": USERS,
    "auth_me": USERS,
    "auth_update_me": USERS,
    "auth_jwks": PUBLIC,
    "auth_oauth_start": PUBLIC,
    "auth_oauth_callback": PUBLIC,
    "auth_oauth_callback_form": PUBLIC,
    "auth_anonymous": PUBLIC,
    "auth_page": PUBLIC,
    "auth_link_request": PUBLIC,
    "auth_magic_link_confirm": PUBLIC,
    "auth_accept_invitation": PUBLIC,
    "users_invite": ADMINS,
    "users_invitations_list": RUNNERS,
    "users_invitations_revoke": ADMINS,
    "auth_upgrade": USERS,
    "auth_upgrade_code": USERS,
    "auth_upgrade_verify": USERS,
    "auth_upgrade_oauth": USERS,
    "users_settings_get": RUNNERS,
    "users_settings_update": ADMINS,
    "auth_second_factor": PUBLIC,
    "auth_second_factor_methods": PUBLIC,
    "auth_second_factor_get": USERS,
    # Without a token it takes a challenge, which the users of these rows do not have.
    "auth_totp_enrol": USERS,
    "auth_totp_confirm": USERS,
    "auth_totp_remove": USERS,
    "auth_recovery_codes": USERS,
    "auth_passkey_options": USERS,
    "auth_passkey_add": USERS,
    "auth_passkeys": USERS,
    "auth_passkey_delete": USERS,
    "auth_passkey_sign_in_options": PUBLIC,
    "auth_passkey_sign_in": PUBLIC,
    "users_second_factor_reset": ADMINS,
    "auth_mcp_request": PUBLIC,
    # A key that acts for a user is refused as other keys are.
    "auth_mcp_decide": USERS,
    # Only the OAuth endpoints call these, after they have checked what the protocol asks for.
    "auth_mcp_register": INTERNAL,
    "auth_mcp_client": INTERNAL,
    "auth_mcp_code": INTERNAL,
    "auth_mcp_exchange": INTERNAL,
    "auth_mcp_refresh": INTERNAL,
    "auth_mcp_revoke": INTERNAL,
    "users_providers_create": ADMINS,
    "users_providers_list": RUNNERS,
    "users_providers_get": RUNNERS,
    "users_providers_update": ADMINS,
    "users_providers_delete": ADMINS,
    "users_rotate_keys": ADMINS,
    "users_hook_calls": RUNNERS,
    "users_list": RUNNERS,
    "users_get": RUNNERS,
    "users_update": ADMINS,
    "users_delete": ADMINS,
    "users_sessions": RUNNERS,
    "users_sessions_end": ADMINS,
    "users_import": ADMINS,
}


async def for_auth_signup(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "email": f"{world.new_name('new')}@example.com", "password": PASSWORD}


async def for_auth_anonymous(world: World, caller: Caller) -> dict[str, Any]:
    body = {"anonymous": True}
    await world.request("PATCH", f"/v1/{world.app}/auth/settings", world.owner.headers, **body)
    return {"app_id": world.app}


async def _sign_up(world: World) -> dict[str, Any]:
    world.baobab.application.services.limits._windows.clear()  # type: ignore[attr-defined]
    credentials = {"email": f"{world.new_name('known')}@example.com", "password": PASSWORD}
    await world.request("POST", f"/auth/{world.app}/signup", {}, **credentials)
    return credentials


async def for_auth_login(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, **await _sign_up(world)}


async def for_auth_refresh(world: World, caller: Caller) -> dict[str, Any]:
    signed_in = await world.request("POST", f"/auth/{world.app}/login", {}, **await _sign_up(world))
    return {"app_id": world.app, "refresh_token": signed_in["refresh_token"]}


async def _for_code(world: World, purpose: Purpose, **further: Any) -> dict[str, Any]:
    email, services = (await _sign_up(world))["email"], world.baobab.application.services
    async with services.regions["local"].database.writing_unit(lock=world.app) as unit:
        code = await issue_code(unit, services.vault, world.app, email, purpose, services.clock.now())
    return {"app_id": world.app, "email": email, "code": code.code, **further}


async def for_auth_verify_email(world: World, caller: Caller) -> dict[str, Any]:
    return await _for_code(world, "verify_email")


async def for_auth_magic_link_verify(world: World, caller: Caller) -> dict[str, Any]:
    return await _for_code(world, "magic_link")


async def for_auth_reset_password(world: World, caller: Caller) -> dict[str, Any]:
    return await _for_code(world, "reset_password", new_password=PASSWORD)


async def _for_link(world: World, purpose: Purpose, **further: Any) -> dict[str, Any]:
    email, services = (await _sign_up(world))["email"], world.baobab.application.services
    if purpose == "app_invitation":
        email = f"{world.new_name('invited')}@example.com"
        path = f"/v1/{world.app}/admin/auth/users/invite"
        await world.request("POST", path, world.owner.headers, email=email)
    async with services.regions["local"].database.writing_unit(lock=world.app) as unit:
        code = await issue_code(unit, services.vault, world.app, email, purpose, services.clock.now())
    return {"app_id": world.app, "link": code.link, **further}


async def for_auth_link_request(world: World, caller: Caller) -> dict[str, Any]:
    return await _for_link(world, "magic_link")


for_auth_magic_link_confirm = for_auth_link_request


async def for_auth_accept_invitation(world: World, caller: Caller) -> dict[str, Any]:
    return await _for_link(world, "app_invitation", password=PASSWORD)


async def _read_me(world: World, caller: Caller) -> str:
    return str((await caller.client.get(f"/auth/{world.app}/me", headers=caller.headers)).json()["id"])


async def _keep_totp(world: World, user_id: str, *, is_confirmed: bool) -> str:
    """Stores an authenticator app of a user, and returns a code of it."""
    services, secret = world.baobab.application.services, create_secret()
    key = {"app_id": world.app, "user_id": user_id}
    now = services.clock.now()
    row = {"secret": services.vault.seal(secret.encode(), f"user_totp.secret:{user_id}"), "created_at": now}
    row |= {"confirmed_at": now if is_confirmed else None, "last_period": None, "wrong_tries": 0}
    async with services.regions["local"].database.writing(lock=world.app) as connection:
        await connection.execute(delete(user_totp).where(user_totp.c.user_id == user_id))
        await connection.execute(insert(user_totp), {**key, **row})
    return compute_code(secret, int(services.clock.time()) // 30)


async def for_auth_second_factor(world: World, caller: Caller) -> dict[str, Any]:
    credentials = await _sign_up(world)
    response = await world.request("POST", f"/auth/{world.app}/login", {}, **credentials)
    code = await _keep_totp(world, response["user"]["id"], is_confirmed=True)
    pending_login = await world.request("POST", f"/auth/{world.app}/login", {}, **credentials)
    return {"app_id": world.app, "challenge": pending_login["challenge"], "code": code}


async def for_auth_second_factor_methods(world: World, caller: Caller) -> dict[str, Any]:
    arguments = await for_auth_second_factor(world, caller)
    return {"app_id": world.app, "challenge": arguments["challenge"]}


async def for_auth_totp_confirm(world: World, caller: Caller) -> dict[str, Any]:
    code = await _keep_totp(world, await _read_me(world, caller), is_confirmed=False) if caller.name == "user" else "1"
    return {"app_id": world.app, "code": code}


async def for_auth_totp_enrol(world: World, caller: Caller) -> dict[str, Any]:
    if caller.name == "user":
        await _keep_totp(world, await _read_me(world, caller), is_confirmed=False)
    return {"app_id": world.app}


async def for_auth_totp_remove(world: World, caller: Caller) -> dict[str, Any]:
    code = await _keep_totp(world, await _read_me(world, caller), is_confirmed=True) if caller.name == "user" else "1"
    return {"app_id": world.app, "code": code}


for_auth_recovery_codes = for_auth_totp_remove
_PAGE = "http://localhost:3000"


async def for_auth_passkey_options(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "origin": _PAGE}


for_auth_passkey_sign_in_options = for_auth_passkey_options


async def _make_passkey(world: World, headers: dict[str, str]) -> tuple[SoftAuthenticator, dict[str, Any]]:
    device, path = SoftAuthenticator(_PAGE), f"/auth/{world.app}/passkeys/options"
    response = await world.request("POST", path, headers, origin=_PAGE)
    return device, {"state": response["state"], "credential": device.create(response["options"])}


async def for_auth_passkey_add(world: World, caller: Caller) -> dict[str, Any]:
    if caller.name != "user":
        return {"app_id": world.app, "state": "s", "credential": {}}
    return {"app_id": world.app, **(await _make_passkey(world, caller.headers))[1]}


async def for_auth_passkey_delete(world: World, caller: Caller) -> dict[str, Any]:
    passkey_id = world.baobab.application.services.ids.uuid()
    if caller.name == "user":
        _, registration = await _make_passkey(world, caller.headers)
        response = await world.request("POST", f"/auth/{world.app}/passkeys", caller.headers, **registration)
        passkey_id = response["id"]
    return {"app_id": world.app, "passkey_id": passkey_id}


async def for_auth_passkey_sign_in(world: World, caller: Caller) -> dict[str, Any]:
    signed_in = await world.request("POST", f"/auth/{world.app}/login", {}, **await _sign_up(world))
    headers = {"authorization": f"Bearer {signed_in['access_token']}"}
    device, registration = await _make_passkey(world, headers)
    await world.request("POST", f"/auth/{world.app}/passkeys", headers, **registration)
    path = f"/auth/{world.app}/passkeys/sign-in/options"
    response = await world.request("POST", path, {}, origin=_PAGE)
    return {"app_id": world.app, "state": response["state"], "credential": device.get(response["options"])}


async def for_users_invite(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "email": f"{world.new_name('guest')}@example.com"}


async def for_users_invitations_revoke(world: World, caller: Caller) -> dict[str, Any]:
    email = f"{world.new_name('guest')}@example.com"
    path = f"/v1/{world.app}/admin/auth/users/invite"
    response = await world.request("POST", path, world.owner.headers, email=email)
    return {"app_id": world.app, "invitation_id": response["invitation"]["id"]}


async def for_auth_session_end(world: World, caller: Caller) -> dict[str, Any]:
    services, session_id = world.baobab.application.services, world.baobab.application.services.ids.uuid()
    if caller.name == "user":
        me = (await caller.client.get(f"/auth/{world.app}/me", headers=caller.headers)).json()
        now = services.clock.now()
        row = {"app_id": world.app, "id": session_id, "user_id": me["id"], "method": "email", "created_at": now}
        row |= {"refreshed_at": now, "expires_at": now.replace(year=now.year + 1)}
        async with services.regions["local"].database.writing(lock=world.app) as connection:
            await connection.execute(insert(user_sessions), row)
    return {"app_id": world.app, "session_id": session_id}


async def for_auth_mcp_request(world: World, caller: Caller) -> dict[str, Any]:
    body = {"tools": ["kv_get"]}
    await world.request("PATCH", f"/v1/{world.app}/config/user-tools", world.owner.headers, **body)
    client: dict[str, Any] = {"client_id": "c", "client_name": "Agent", "code_challenge": "c" * 43, "state": None}
    authorization_request = AuthorizationRequest(
        **client, redirect_uri="http://localhost/", redirect_given=True, issuer=ADDRESS
    )
    return {
        "app_id": world.app,
        "request": seal_request(world.baobab.application.services, world.app, ADDRESS, authorization_request),
    }


async def for_auth_mcp_decide(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_auth_mcp_request(world, caller), "decision": "approve"}


async def _for_user(world: World, caller: Caller, **further: Any) -> dict[str, Any]:
    user_id = world.baobab.application.services.ids.uuid()
    await mint_user_token(world.baobab.application, world.app, user_id)
    return {"app_id": world.app, "user_id": user_id, **further}


async def for_users_update(world: World, caller: Caller) -> dict[str, Any]:
    return await _for_user(world, caller, role="editor")


for_users_second_factor_reset = for_users_get = for_users_delete = for_users_sessions = for_users_sessions_end = (
    _for_user
)


def _build_provider(world: World) -> dict[str, Any]:
    urls = {f"{kind}_url": "https://id.example.com/x" for kind in ("authorization", "token", "userinfo")}
    name = world.new_name("provider")
    return {"provider": name, "client_id": "c", "client_secret": "s", "redirect_uris": [], **urls}


async def for_users_providers_create(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, **_build_provider(world)}


async def _for_provider(world: World, caller: Caller) -> dict[str, Any]:
    provider = _build_provider(world)
    await world.request("POST", f"/v1/{world.app}/auth/oauth-config", world.owner.headers, **provider)
    return {"app_id": world.app, "provider": provider["provider"]}


async def for_users_providers_update(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _for_provider(world, caller), "enabled": True}


async def for_auth_oauth_callback(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "provider": "google", "code": "c", "state": "s"}


for_users_providers_get = for_users_providers_delete = for_auth_oauth_start = _for_provider
for_auth_oauth_callback_form = for_auth_oauth_callback


async def for_users_import(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "users": [{"email": f"{world.new_name('imported')}@example.com"}]}
