"""The toolkits of an app: which provider has them, and how they are enabled."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from baobab.runtime.integrations.opening import Integrations
from baobab.runtime.integrations.provider import (
    Client,
    IntegrationProvider,
    ProviderBusy,
    Setting,
    Toolkit,
)
from baobab.storage.secrets import Vault
from baobab.tools.core import Call, Services
from baobab.tools.integrations.errors import (
    CredentialsRequired,
    NotConfigured,
    ProviderUnknown,
    ToolkitNotEnabled,
    ToolkitUnknown,
    UpstreamFailed,
)
from baobab.tools.integrations.schemas import OAuthCredentials, Row
from baobab.tools.integrations.tables import toolkits

_columns = toolkits.c


def list_providers(call: Call) -> Sequence[IntegrationProvider]:
    """Returns the providers that new toolkits may have, first choice first. Raises NotConfigured."""
    providers = call.services.part(Integrations).offered
    if not providers:
        raise NotConfigured
    return providers


def find_provider(services: Services, name: str) -> IntegrationProvider:
    """Returns a provider by its name. Raises NotConfigured for one that this server has no more."""
    provider = services.part(Integrations).all.get(name)
    if provider is None:
        raise NotConfigured(f"The provider `{name}`, with which this was set up, is not configured any more.")
    return provider


async def choose_provider(
    call: Call, slug: str, name: str | None, *, has_credentials: bool
) -> tuple[IntegrationProvider, Toolkit]:
    """Returns the provider that an app gets for a toolkit: the named one, else the first that can do it.

    Raises NotConfigured, ProviderUnknown, ToolkitUnknown, CredentialsRequired or UpstreamFailed.
    """
    providers = list_providers(call)
    if name is not None:
        providers = [each for each in providers if each.name == name]
        if not providers:
            names = [each.name for each in list_providers(call)]
            raise ProviderUnknown(details={"providers": names})
    needy: Toolkit | None = None
    for provider in providers:
        try:
            toolkit = await provider.find_toolkit(slug)
        except ProviderBusy as busy:
            raise translate_busy(busy) from busy
        if toolkit is None:
            continue
        if has_credentials or not toolkit.needs_credentials:
            return provider, toolkit
        needy = needy or toolkit
    if needy is None:
        raise ToolkitUnknown(f"No provider of this server has a toolkit `{slug}`.")
    raise CredentialsRequired(f"{needy.name} needs an OAuth client of the app's own here.")


def translate_busy(busy: ProviderBusy) -> UpstreamFailed:
    """Returns the error of something else than a call of a tool for which the provider had no time."""
    return UpstreamFailed(str(busy), retry_after=busy.seconds)


async def load_enabled(call: Call, slug: str) -> Row:
    """Returns the row of an enabled toolkit. Raises ToolkitNotEnabled."""
    app_id = call.require_app().id
    query = select(toolkits).where(_columns.app_id == app_id, _columns.toolkit_slug == slug, _columns.enabled)
    row = (await call.read(query)).first()
    if row is None:
        raise ToolkitNotEnabled(f"The toolkit `{slug}` is not enabled for the app.")
    return row


async def list_enabled(call: Call) -> Sequence[Row]:
    """Lists the rows of the app's enabled toolkits, by slug."""
    app_id = call.require_app().id
    query = select(toolkits).where(_columns.app_id == app_id, _columns.enabled).order_by(_columns.toolkit_slug)
    return (await call.read(query)).all()


async def find_toolkit_of(call: Call, tool_name: str) -> Row:
    """Returns the row of the enabled toolkit that a tool belongs to, by the beginning of its name.

    Raises ToolkitNotEnabled.
    """
    rows = [row for row in await list_enabled(call) if tool_name.startswith(prefix_of(row.toolkit_slug))]
    if not rows:
        raise ToolkitNotEnabled(f"No toolkit that the app has enabled has the tool {tool_name}.")
    return max(rows, key=lambda row: len(row.toolkit_slug))


def prefix_of(slug: str) -> str:
    """Returns what the names of a toolkit's tools begin with."""
    return f"{slug.replace('-', '').upper()}_"


def build_setting(vault: Vault, row: Row) -> Setting:
    """Returns a toolkit as its provider is told of it."""
    client = None if row.credentials is None else open_credentials(vault, row)
    return Setting(row.app_id, row.toolkit_slug, tuple(row.scopes), client, row.reference)


def seal_credentials(vault: Vault, row_id: str, credentials: OAuthCredentials) -> str:
    """Returns an OAuth client as its row keeps it."""
    content = {name: credentials[name] for name in ("client_id", "client_secret")}
    return vault.seal(json.dumps(content).encode(), _context(row_id))


def open_credentials(vault: Vault, row: Any) -> Client:
    """Returns the OAuth client of a row."""
    content = json.loads(vault.open(row.credentials, _context(row.id)))
    return Client(content["client_id"], content["client_secret"])


def _context(row_id: str) -> str:
    return f"integration_toolkits.credentials:{row_id}"
