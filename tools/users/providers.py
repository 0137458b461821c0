"""The OAuth providers of an app, as its owner has set them."""

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sqlalchemy import select

from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Execute
from baobab.tools.core import Call
from baobab.tools.users.errors import ProviderNotFound
from baobab.tools.users.provider_kinds import BUILT_IN, ProviderKind
from baobab.tools.users.schemas import Provider
from baobab.tools.users.tables import user_providers

HIDDEN = frozenset({"privateKey"})
"""The fields of `provider_metadata` that are never shown."""


@dataclass(frozen=True, slots=True)
class ProviderAccount:
    """An app's account with a provider: what the flow needs."""

    kind: ProviderKind
    client_id: str
    scopes: tuple[str, ...]
    client_secret: str = field(repr=False)
    metadata: dict[str, Any] = field(repr=False)


async def find_row(execute: Execute, app_id: str, provider: str) -> Any:
    """Returns the row of a provider. Raises ProviderNotFound."""
    conditions = (user_providers.c.app_id == app_id, user_providers.c.provider == provider)
    row = (await execute(select(user_providers).where(*conditions))).first()
    if row is None:
        raise ProviderNotFound
    return row


def open_account(vault: Vault, row: Any) -> ProviderAccount:
    """Builds the account of a provider's row. What the row says wins over what is built in."""
    metadata = open_metadata(vault, row)
    kind = BUILT_IN.get(row.provider)
    if kind is None:
        issuer = metadata.get("issuer")
        kind = ProviderKind(
            row.provider,
            row.authorization_url,
            row.token_url,
            row.userinfo_url,
            tuple(row.scopes),
            issuers=(issuer,) if isinstance(issuer, str) else (),
            jwks_url=metadata.get("jwks_url"),
        )
    else:
        urls = {name: getattr(row, name) for name in ("authorization_url", "token_url", "userinfo_url")}
        kind = replace(kind, **{name: url for name, url in urls.items() if url is not None})
        if isinstance(metadata.get("jwks_url"), str):
            kind = replace(kind, jwks_url=metadata["jwks_url"])
        if isinstance(metadata.get("issuer"), str):
            kind = replace(kind, issuers=(metadata["issuer"],))
    secret = vault.open(row.client_secret, seal_context("client_secret", row.id)).decode()
    return ProviderAccount(kind, row.client_id, tuple(row.scopes), secret, metadata)


def open_metadata(vault: Vault, row: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(vault.open(row.provider_metadata, seal_context("provider_metadata", row.id)))
    return metadata


def seal_context(column: str, provider_id: str) -> str:
    """Returns the context that a sealed value of a provider is bound to, as the rotation of secrets expects it."""
    return f"{user_providers.name}.{column}:{provider_id}"


def build_callback(call: Call, provider: str) -> str:
    """Returns the address that the provider sends the browser back to; it is registered with the provider."""
    return f"{call.services.options.base_url}/auth/{call.require_app().id}/oauth/{provider}/callback"


def describe_provider(call: Call, row: Any) -> Provider:
    """Returns a provider as callers may see it, without its secrets."""
    kind = BUILT_IN.get(row.provider)
    description = {
        name: getattr(row, name)
        for name in Provider.__annotations__
        if name not in ("provider_metadata", "callback_url")
    }
    description["callback_url"] = build_callback(call, row.provider)
    for name in ("authorization_url", "token_url", "userinfo_url"):
        description[name] = description[name] or (None if kind is None else getattr(kind, name))
    metadata = open_metadata(call.services.vault, row)
    metadata = {name: "(hidden)" if name in HIDDEN else value for name, value in metadata.items()}
    return cast(Provider, {**description, "provider_metadata": metadata})
