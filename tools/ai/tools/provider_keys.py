"""An organisation's own keys for providers of models. Calls with these keys are not charged."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy import delete, select

from baobab.runtime.gateway.gateway import Gateway
from baobab.storage.sql.tables import build_upsert
from baobab.tools.ai import organisation_providers, settings
from baobab.tools.ai.errors import KeyOfAnother, ProviderKeyNotFound, UnknownProvider
from baobab.tools.ai.schemas import KeyOfProvider, KeysOfProviders, ProviderKeyRemoved
from baobab.tools.ai.tables import provider_keys as rows
from baobab.tools.ai.tools.administration import ProviderKey
from baobab.tools.ai.toolset import model_servers
from baobab.tools.core import AnyAccount, Audit, Call, Guard, Rest, Text
from baobab.tools.core.guard.escaping import escape_text
from baobab.tools.core.listing import Listing

ProviderName = Annotated[
    str,
    Text(60, min_length=1, pattern="^[a-z0-9_-]+$"),
    Field(description="The provider of the key, as op:provider_keys_list names it.", examples=["openai"]),
]


@model_servers.tool(
    "GET /provider-keys",
    access=AnyAccount(),
    effect="read",
    listing=Listing("provider_keys"),
)
async def provider_keys_list(call: Call) -> KeysOfProviders:
    """List your organisation's own keys for providers of models. Only the end of each key is shown."""
    query = select(rows).where(rows.c.organisation_id == call.account.organisation_id).order_by(rows.c.provider)
    key_rows = (await call.execute(query)).all()
    return {
        "provider_keys": [_render_key(row.provider, row.last4, row.updated_at) for row in key_rows],
        "providers": list(call.services.part(Gateway).key_providers),
    }


@model_servers.tool(
    "PUT /provider-keys/{provider}",
    access=AnyAccount("admin"),
    effect="write",
    raises=(UnknownProvider, KeyOfAnother),
    audit=Audit("ai.provider_key.set", resource="provider_key"),
    rest=Rest(examples={"provider": "openai", "key": "sk-proj-0123456789abcdef"}),
    guard=Guard(destructive_when="if the organisation already has a key for the provider, which it replaces"),
)
async def provider_keys_set(call: Call, provider: ProviderName, key: ProviderKey) -> KeyOfProvider:
    """Store your organisation's own key for a provider: its text models are called with it, and not charged.

    The key applies to the gateway, and to all apps of the organisation that have no `byokKey` for the provider. With
    it you can also call models of providers for which the installation has no key. The key is stored encrypted and
    never shown.

    key: the key that the provider gave you.
    """
    key_providers = call.services.part(Gateway).key_providers
    if provider not in key_providers:
        raise UnknownProvider(
            f"`{provider}` is not a vendor whose models you can call with your own key.",
            remediation=f"Use a key for one of these providers: {', '.join(key_providers)}.",
        )
    provider_by_prefix = settings.provider_of(key)
    if provider_by_prefix is not None and provider_by_prefix != provider:
        raise KeyOfAnother(f"This key begins like a key of `{provider_by_prefix}`.")
    organisation = call.account.organisation_id
    id_ = f"{organisation}:{provider}"
    if (await call.execute(select(rows.c.id).where(rows.c.id == id_))).first():
        call.declare_destructive()
    values = {
        "key": call.services.vault.seal(key.encode(), organisation_providers.key_context(rows, id_)),
        "last4": organisation_providers.last4(key),
        "updated_at": call.now,
    }
    row = {"id": id_, "organisation_id": organisation, "provider": provider, **values}
    insertion = build_upsert(call.unit.database.dialect, rows).values(row)
    await call.execute(insertion.on_conflict_do_update(index_elements=["id"], set_=values))
    await _publish_change(call, provider)
    return _render_key(provider, organisation_providers.last4(key), call.now)


async def _preview_delete(call: Call, provider: ProviderName) -> str:
    query = select(rows.c.last4).where(rows.c.id == f"{call.account.organisation_id}:{provider}")
    last4 = (await call.execute(query)).scalar()
    if last4 is None:
        raise ProviderKeyNotFound
    return f"It would remove the organisation's key for {provider}, which ends in {escape_text(last4)}."


@model_servers.tool(
    "DELETE /provider-keys/{provider}",
    access=AnyAccount("admin"),
    effect="destructive",
    raises=(ProviderKeyNotFound,),
    audit=Audit("ai.provider_key.delete", action="delete", resource="provider_key"),
    guard=Guard(preview=_preview_delete),
)
async def provider_keys_delete(call: Call, provider: ProviderName) -> ProviderKeyRemoved:
    """Remove your organisation's key for a provider.

    The provider's models are then called with the installation's key, if it has one.
    """
    result = await call.execute(delete(rows).where(rows.c.id == f"{call.account.organisation_id}:{provider}"))
    if result.rowcount == 0:
        raise ProviderKeyNotFound
    await _publish_change(call, provider)
    return {"removed": True, "provider": provider}


async def _publish_change(call: Call, provider: str) -> None:
    organisation = call.account.organisation_id
    await organisation_providers.publish_change(call, organisation)
    call.audit.resource_id, call.audit.organisation_id = provider, organisation


def _render_key(provider: str, last4: str, updated_at: datetime) -> KeyOfProvider:
    return {"provider": provider, "key": f"***{last4}", "updated_at": updated_at}
