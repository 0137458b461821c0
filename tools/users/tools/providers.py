"""/v1/{app_id}/auth/oauth-config: the OAuth providers by which users of an app may sign in."""

import json
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field
from sqlalchemy import delete, insert, select, update

from baobab.runtime.net.addresses import EgressError, Target
from baobab.tools.core import AppId, AppOwner, Audit, BadRequest, Call, Guard, Rest, Secret, Text
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.users.errors import ProviderIncomplete, ProviderNotFound
from baobab.tools.users.provider_kinds import BUILT_IN
from baobab.tools.users.providers import describe_provider, find_row, open_metadata, seal_context
from baobab.tools.users.schemas import OneProvider, ProviderDeleted, Providers, ProviderSaved
from baobab.tools.users.tables import FREEZES, user_providers
from baobab.tools.users.toolset import users

_ADMIN = AppOwner("admin")
_APPLE = ("teamId", "keyId", "privateKey")
_MOST_METADATA = 20_000
_CONFIGURED, _REPLACED = "OAuth provider configured", "OAuth provider replaced"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

Slug = Annotated[
    str,
    Text(40, pattern=r"^[a-z][a-z0-9-]*$"),
    Field(
        description=f"A built-in provider ({', '.join(BUILT_IN)}) or a name of your own for another.",
        examples=["google"],
    ),
]
ClientId = Annotated[str, Text(500, min_length=1), Field(description="What the provider calls your app.")]
ClientSecret = Annotated[str, Secret(2000, min_length=1), Field(description="The secret that the provider gave you.")]
Url = Annotated[str, Text(2000, min_length=1), Field(description="An address of the provider.")]
Uris = Annotated[list[Annotated[str, Text(2000, min_length=1)]], Field(max_length=20)]
Scopes = Annotated[list[Annotated[str, Text(200, min_length=1)]], Field(max_length=50)]
Metadata = Annotated[
    dict[str, Annotated[str, Secret(5000)]],
    Field(max_length=20, description="Further settings: `teamId`, `keyId`, `privateKey` for apple; `issuer` and "
          "`jwks_url` for a provider of your own that answers ID tokens."),
]  # fmt: skip


@users.tool(
    "POST /auth/oauth-config",
    access=_ADMIN,
    effect="write",
    raises=(ProviderIncomplete,),
    audit=Audit("oauth.provider.create", action="create", resource="oauth_provider"),
    rest=Rest(
        status=lambda saved: 200 if saved["message"] == _REPLACED else 201,
        statuses=(201, 200),
        examples={
            "provider": "google",
            "client_id": "123.apps.googleusercontent.com",
            "client_secret": "GOCSPX-...",
            "redirect_uris": ["https://api.example.com/auth/app_1a2b3c4d5e6f/oauth/google/callback"],
        },
    ),
    guard=Guard(grants=True, destructive_when="if the app has this provider already: its settings are replaced"),
)
async def users_providers_create(
    call: Call,
    app_id: AppId,
    provider: Slug,
    client_id: ClientId,
    client_secret: ClientSecret,
    redirect_uris: Uris,
    scopes: Scopes | None = None,
    authorization_url: Url | None = None,
    token_url: Url | None = None,
    userinfo_url: Url | None = None,
    provider_metadata: Metadata | None = None,
) -> ProviderSaved:
    """Let users of an app sign in with an OAuth provider; this replaces the settings of one that the app has already.

    Register the `callback_url` of the answer with the provider: the address that it sends browsers back to. A provider
    that is not built in needs its three addresses.

    redirect_uris: the addresses that are registered with the provider.
    scopes: what is asked of the user; left out or empty, what the provider needs to tell the address and the name.
    """
    metadata = dict(provider_metadata or {})
    urls = {"authorization_url": authorization_url, "token_url": token_url, "userinfo_url": userinfo_url}
    _require_complete(provider, urls, metadata)
    settings: dict[str, Any] = {"client_id": client_id, "redirect_uris": redirect_uris, "enabled": True, **urls}
    settings["scopes"] = scopes or _default_scopes(provider)
    is_this = (user_providers.c.app_id == app_id, user_providers.c.provider == provider)
    async with FREEZES.writing(call) as unit:
        older_id = (await unit.execute(select(user_providers.c.id).where(*is_this))).scalar_one_or_none()
        provider_id = older_id or call.services.ids.uuid()
        settings |= _seal(call, provider_id, client_secret=client_secret, provider_metadata=metadata)
        settings["updated_at"] = now = call.now
        if older_id is None:
            names = {"app_id": app_id, "id": provider_id, "provider": provider, "created_at": now}
            await unit.execute(insert(user_providers), {**names, **settings})
        else:
            call.declare_destructive()
            await unit.execute(update(user_providers).where(*is_this).values(settings))
        saved_row = await find_row(unit.execute, app_id, provider)
    call.audit.resource_id = provider
    return {
        "message": _CONFIGURED if older_id is None else _REPLACED,
        "config": describe_provider(call, saved_row),
    }


@users.tool(
    "GET /auth/oauth-config",
    access=AppOwner(),
    effect="read",
)
async def users_providers_list(call: Call, app_id: AppId) -> Providers:
    """List the OAuth providers of an app, without their secrets."""
    query = select(user_providers).where(user_providers.c.app_id == app_id).order_by(user_providers.c.provider)
    async with call.reading() as execute:
        rows = (await execute(query.limit(200))).all()
    return {"configs": [describe_provider(call, row) for row in rows]}


@users.tool(
    "GET /auth/oauth-config/{provider}",
    access=AppOwner(),
    effect="read",
    raises=(ProviderNotFound,),
)
async def users_providers_get(call: Call, app_id: AppId, provider: Slug) -> OneProvider:
    """Read one OAuth provider of an app, without its secrets."""
    async with call.reading() as execute:
        return {"config": describe_provider(call, await find_row(execute, app_id, provider))}


@users.tool(
    "PATCH /auth/oauth-config/{provider}",
    access=_ADMIN,
    effect="write",
    raises=(ProviderNotFound, ProviderIncomplete),
    audit=Audit("oauth.provider.update", resource="oauth_provider"),
    rest=Rest(examples={"enabled": False}),
    guard=Guard(grants=True, widens={"enabled": whatever_is_given}),
)
async def users_providers_update(
    call: Call,
    app_id: AppId,
    provider: Slug,
    client_id: ClientId | None = None,
    client_secret: ClientSecret | None = None,
    redirect_uris: Uris | None = None,
    scopes: Scopes | None = None,
    authorization_url: Url | None = None,
    token_url: Url | None = None,
    userinfo_url: Url | None = None,
    provider_metadata: Metadata | None = None,
    enabled: bool | None = None,
) -> ProviderSaved:
    """Change an OAuth provider of an app; what is left out stays.

    redirect_uris: the addresses that are registered with the provider.
    scopes: what is asked of the user; empty, what the provider needs to tell the address and the name.
    enabled: whether users may sign in with it.
    """
    new_values = {"client_id": client_id, "redirect_uris": redirect_uris, "scopes": scopes, "enabled": enabled}
    new_values |= {"authorization_url": authorization_url, "token_url": token_url, "userinfo_url": userinfo_url}
    changes: dict[str, Any] = {name: value for name, value in new_values.items() if value is not None}
    if scopes is not None and not scopes:
        changes["scopes"] = _default_scopes(provider)
    async with FREEZES.writing(call) as unit:
        row = await find_row(unit.execute, app_id, provider)
        metadata = open_metadata(call.services.vault, row) if provider_metadata is None else dict(provider_metadata)
        urls = {name: changes.get(name, getattr(row, name)) for name in _URLS}
        _require_complete(provider, urls, metadata)
        if client_secret is not None:
            changes |= _seal(call, row.id, client_secret=client_secret)
        if provider_metadata is not None:
            changes |= _seal(call, row.id, provider_metadata=metadata)
        if not changes:
            raise BadRequest("Nothing to change.")
        is_this = (user_providers.c.app_id == app_id, user_providers.c.id == row.id)
        await unit.execute(update(user_providers).where(*is_this).values(**changes, updated_at=call.now))
        saved_row = await find_row(unit.execute, app_id, provider)
    call.audit.resource_id = provider
    call.audit.data["fields"] = sorted(changes)
    return {"message": "OAuth provider updated", "config": describe_provider(call, saved_row)}


async def _preview_deletion(call: Call, app_id: str, provider: str) -> str:
    async with call.reading() as execute:
        await find_row(execute, app_id, provider)
    return f"Deletes the sign-in by {provider}. Users who signed in with it keep their accounts."


@users.tool(
    "DELETE /auth/oauth-config/{provider}",
    access=_ADMIN,
    effect="destructive",
    raises=(ProviderNotFound,),
    audit=Audit("oauth.provider.delete", action="delete", resource="oauth_provider"),
    guard=Guard(preview=_preview_deletion),
)
async def users_providers_delete(call: Call, app_id: AppId, provider: Slug) -> ProviderDeleted:
    """Delete an OAuth provider of an app. Users who signed in with it keep their accounts."""
    async with FREEZES.writing(call) as unit:
        row = await find_row(unit.execute, app_id, provider)
        is_this = (user_providers.c.app_id == app_id, user_providers.c.id == row.id)
        await unit.execute(delete(user_providers).where(*is_this))
    call.audit.resource_id = provider
    return {"message": "OAuth provider removed", "provider": provider}


_URLS = ("authorization_url", "token_url", "userinfo_url")


def _default_scopes(provider: str) -> list[str]:
    kind = BUILT_IN.get(provider)
    return ["openid", "email", "profile"] if kind is None else list(kind.scopes)


def _require_complete(provider: str, urls: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Raises ProviderIncomplete, and BadRequest for what is not an address."""
    missing = [name for name in _URLS if urls[name] is None] if provider not in BUILT_IN else []
    missing += [f"provider_metadata.{name}" for name in _APPLE if provider == "apple" and not metadata.get(name)]
    if missing:
        raise ProviderIncomplete(f"{provider} needs {', '.join(f'`{name}`' for name in missing)}.")
    if len(json.dumps(metadata)) > _MOST_METADATA:
        raise BadRequest(f"`provider_metadata` has more than {_MOST_METADATA} characters.")
    for name, url in (*urls.items(), ("jwks_url", metadata.get("jwks_url"))):
        try:
            if url is not None:
                # The client's secret is sent there. On this machine nobody reads along.
                Target.parse(url, https_only=urlsplit(url).hostname not in _THIS_MACHINE)
        except (EgressError, ValueError) as exc:
            reason = exc.message if isinstance(exc, EgressError) else "it cannot be read."
            raise BadRequest(f"`{name}` is not an address that can be called: {reason}") from exc


def _seal(call: Call, provider_id: str, **values: Any) -> dict[str, str]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    vault = call.services.vault
    return {name: vault.seal(text.encode(), seal_context(name, provider_id)) for name, text in texts.items()}
