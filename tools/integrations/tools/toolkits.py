"""The tools of those who run an app: which toolkits there are, and which its users may connect."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from sqlalchemy import insert, select, update

from baobab.runtime.integrations.provider import CURATED, Client, IntegrationProvider, ProviderBusy, Setting, Toolkit
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.core.guard.wording import quote_text
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.integrations.errors import (
    CredentialsRequired,
    NotConfigured,
    ProviderUnknown,
    ToolkitNotEnabled,
    ToolkitUnknown,
    UpstreamFailed,
)
from baobab.tools.integrations.schemas import (
    Available,
    AvailableToolkit,
    Config,
    Configured,
    ConfiguredToolkit,
    DisplayName,
    OAuthCredentials,
    ProviderName,
    Row,
    ScopeNames,
    Search,
    ToolkitSlug,
)
from baobab.tools.integrations.tables import FREEZES, toolkits
from baobab.tools.integrations.toolkits import (
    build_setting,
    choose_provider,
    find_provider,
    list_enabled,
    list_providers,
    load_enabled,
    seal_credentials,
    translate_busy,
)
from baobab.tools.integrations.toolset import integrations

_ADMIN = AppOwner("admin")
_columns = toolkits.c


@integrations.tool("GET /available", access=AppOwner(), effect="read", raises=(NotConfigured, UpstreamFailed))
async def integrations_available(call: Call, app_id: AppId, search: Search = "") -> Available:
    """List the services that an app can enable: the ten that most apps use, or those that a search finds."""
    del app_id
    views_by_slug: dict[str, AvailableToolkit] = {}
    providers = list_providers(call)
    for provider in providers:
        try:
            offered_toolkits = await provider.list_toolkits(search)
        except ProviderBusy as busy:
            raise translate_busy(busy) from busy
        for toolkit in offered_toolkits:
            view = views_by_slug.setdefault(toolkit.slug, _describe(toolkit))
            view["providers"].append(provider.name)
            # With several providers, one that needs nothing of the app is enough.
            view["requires_byo_credentials"] &= toolkit.needs_credentials
    order = {slug: number for number, slug in enumerate(CURATED)}
    views = sorted(views_by_slug.values(), key=lambda each: (order.get(each["toolkit"], len(order)), each["toolkit"]))
    answer: Available = {"integrations": views}
    return mark_simulated(call, answer) if all(each.is_simulated for each in providers) else answer


def _describe(toolkit: Toolkit) -> AvailableToolkit:
    return {
        "toolkit": toolkit.slug,
        "displayName": toolkit.name,
        "curated": toolkit.slug in CURATED,
        "description": toolkit.description,
        "auth_schemes": list(toolkit.auth_schemes),
        "requires_byo_credentials": toolkit.needs_credentials,
        "scopes": [{"scope": scope.name, "words": scope.words} for scope in toolkit.scopes],
        "providers": [],
    }


@integrations.tool("GET /config", access=AppOwner(), effect="read")
async def integrations_config(call: Call, app_id: AppId) -> Config:
    """List the toolkits that an app has enabled."""
    rows = await list_enabled(call)
    config: Config = {"app_id": app_id, "integrations": [_describe_row(row) for row in rows]}
    is_simulated = any(_is_simulated(call, row) for row in rows)
    return mark_simulated(call, config) if is_simulated else config


def _describe_row(row: Row) -> ConfiguredToolkit:
    return {
        "id": row.id,
        "app_id": row.app_id,
        "toolkit_slug": row.toolkit_slug,
        "display_name": row.display_name,
        "enabled": row.enabled,
        "scopes": row.scopes,
        "provider": row.provider,
        "own_credentials": row.credentials is not None,
        "created_at": row.created_at,
    }


def _is_simulated(call: Call, row: Row) -> bool:
    try:
        return find_provider(call.services, row.provider).is_simulated
    except NotConfigured:
        return False


async def _preview_configure(
    call: Call,
    app_id: AppId,
    toolkit: str,
    displayName: str | None = None,
    scopes: list[str] | None = None,
    oauth_credentials: OAuthCredentials | None = None,
    provider: str | None = None,
) -> str:
    del app_id, displayName
    source, offer = await choose_provider(call, toolkit, provider, has_credentials=oauth_credentials is not None)
    words = {scope.name: scope.words for scope in offer.scopes}
    scope_names = list(words) if scopes is None else scopes
    lines = "\n".join(f"- {words.get(scope, '')} {quote_text(scope)}".replace("-  ", "- ") for scope in scope_names)
    return f"Users of the app could connect {offer.name} (by {source.name}). They would be asked for:\n{lines}"


@integrations.tool(
    "POST /configure",
    access=_ADMIN,
    effect="write",
    raises=(NotConfigured, ToolkitUnknown, ProviderUnknown, CredentialsRequired, UpstreamFailed),
    audit=Audit("integration.configure", action="enable", resource="integration"),
    rest=Rest(examples={"toolkit": "gmail"}),
    guard=Guard(preview=_preview_configure, widens={"scopes": whatever_is_given}),
)
async def integrations_configure(
    call: Call,
    app_id: AppId,
    toolkit: ToolkitSlug,
    displayName: DisplayName | None = None,
    scopes: ScopeNames | None = None,
    oauth_credentials: OAuthCredentials | None = None,
    provider: ProviderName | None = None,
) -> Configured:
    """Enable a toolkit for an app: its users can connect accounts of it, and calls can be made with these.

    A toolkit that is enabled already gets what is sent; accounts that are connected stay.

    scopes: the permissions that users are asked for; left out, those that its tools need.
    oauth_credentials: an OAuth client of the app's own at the service, whose name users then read on the consent page.
    provider: which of this server's providers makes the calls; left out, the first that can.
    """
    source, offer = await choose_provider(call, toolkit, provider, has_credentials=oauth_credentials is not None)
    scope_names = [scope.name for scope in offer.scopes] if scopes is None else list(dict.fromkeys(scopes))
    query = select(toolkits).where(_columns.app_id == app_id, _columns.toolkit_slug == toolkit)
    earlier = (await call.read(query)).first()
    row_id = call.services.ids.uuid() if earlier is None else earlier.id
    values: dict[str, Any] = {
        "display_name": displayName or offer.name,
        "enabled": True,
        "scopes": scope_names,
        "provider": source.name,
        "updated_at": call.now,
        "reference": earlier.reference if earlier is not None and earlier.provider == source.name else None,
    }
    if oauth_credentials is not None:
        values["credentials"] = seal_credentials(call.services.vault, row_id, oauth_credentials)
    elif earlier is not None and earlier.provider != source.name:
        values["credentials"] = None
    fixed_values = {"app_id": app_id, "id": row_id, "toolkit_slug": toolkit, "created_at": call.now}
    fixed_values["credentials"] = None
    kept_values = {} if earlier is None else {"credentials": earlier.credentials}
    setting = build_setting(call.services.vault, SimpleNamespace(**{**fixed_values, **kept_values, **values}))
    values["reference"] = await _enable(source, setting)
    async with FREEZES.writing(call) as unit:
        if (await unit.execute(query)).first() is None:
            await unit.execute(insert(toolkits), {**fixed_values, **values})
        else:
            is_row = (_columns.app_id == app_id, _columns.toolkit_slug == toolkit)
            await unit.execute(update(toolkits).where(*is_row).values(**values))
    call.audit.resource_id = toolkit
    call.audit.data |= {"provider": source.name, "scopes": scope_names}
    call.audit.data["own_credentials"] = setting.client is not None
    await call.emit("integration.enabled", toolkit=toolkit)
    answer: Configured = {"id": row_id, "app_id": app_id, "toolkit_slug": toolkit, "enabled": True}
    return mark_simulated(call, answer) if source.is_simulated else answer


async def _enable(provider: IntegrationProvider, setting: Setting) -> str | None:
    try:
        return await provider.enable(setting)
    except ProviderBusy as busy:
        raise translate_busy(busy) from busy


@integrations.tool(
    "PATCH /configure/{toolkit}/credentials",
    access=_ADMIN,
    effect="write",
    raises=(ToolkitNotEnabled, NotConfigured, UpstreamFailed),
    audit=Audit("integration.credentials", resource="integration"),
    rest=Rest(examples={"oauth_credentials": {"client_id": "app-1", "client_secret": "a secret of the service"}}),
)
async def integrations_credentials(
    call: Call, app_id: AppId, toolkit: ToolkitSlug, oauth_credentials: OAuthCredentials
) -> Configured:
    """Replace the OAuth client with which an app's users connect, such as after its secret was rotated.

    oauth_credentials: the client's id and its new secret at the service.
    """
    row = await load_enabled(call, toolkit)
    provider = find_provider(call.services, row.provider)
    sealed_client = seal_credentials(call.services.vault, row.id, oauth_credentials)
    setting = replace(
        build_setting(call.services.vault, row),
        client=Client(oauth_credentials["client_id"], oauth_credentials["client_secret"]),
    )
    reference = await _enable(provider, setting)
    values = {"credentials": sealed_client, "reference": reference, "updated_at": call.now}
    async with FREEZES.writing(call) as unit:
        is_row = (_columns.app_id == app_id, _columns.id == row.id)
        await unit.execute(update(toolkits).where(*is_row).values(**values))
    call.audit.resource_id = toolkit
    answer: Configured = {"id": row.id, "app_id": app_id, "toolkit_slug": toolkit, "enabled": True}
    return mark_simulated(call, answer) if provider.is_simulated else answer


@integrations.tool(
    "DELETE /configure/{toolkit}",
    access=_ADMIN,
    effect="write",
    raises=(ToolkitNotEnabled,),
    audit=Audit("integration.disable", action="disable", resource="integration"),
    rest=Rest(status=204),
)
async def integrations_disable(call: Call, app_id: AppId, toolkit: ToolkitSlug) -> None:
    """Disable a toolkit for an app: no calls are made with it. Accounts stay, for when it is enabled again."""
    row = await load_enabled(call, toolkit)
    async with FREEZES.writing(call) as unit:
        is_row = (_columns.app_id == app_id, _columns.id == row.id)
        await unit.execute(update(toolkits).where(*is_row).values(enabled=False, updated_at=call.now))
    call.audit.resource_id = toolkit
    await call.emit("integration.disabled", toolkit=toolkit)
