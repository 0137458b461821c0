"""What a clone of an app has of its sign-in: the settings and the providers, switched off and without credentials."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from baobab.tools.core.app_clones import Ability, ClonedRows, CloneRule, Cloning, Row, never_clone
from baobab.tools.users.provider_kinds import BUILT_IN
from baobab.tools.users.providers import seal_context
from baobab.tools.users.tables import user_providers, user_settings

_URLS = ("authorization_url", "token_url", "userinfo_url")


def _copy_settings(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    del cloning
    return row


def _copy_provider(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    provider_id = cloning.derive_id(user_providers.name, row["id"])
    vault = cloning.services.vault
    sealed_columns = {
        name: vault.seal(text.encode(), seal_context(name, provider_id))
        for name, text in (("client_secret", ""), ("provider_metadata", "{}"))
    }
    times = {"created_at": cloning.started_at, "updated_at": cloning.started_at}
    return {**row, "id": provider_id, "client_id": "", "enabled": False, **sealed_columns, **times}


def _list_abilities(row: Row) -> Iterable[Ability]:
    hosts = sorted({urlsplit(row[name]).hostname or "" for name in _URLS if row[name] is not None} - {""})
    is_custom = bool(hosts) or row["provider"] not in BUILT_IN
    says = f"Users may sign in with {row['provider']}."
    if is_custom:
        says += f" Its addresses are the template's own: {', '.join(hosts) or 'none'}."
    kind = "custom_oauth_provider" if is_custom else "oauth_provider"
    yield Ability(kind, row["provider"], says, bool(row["enabled"]), "users_providers_update")


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(user_settings, "replaying_config", "how users sign in, and how the page looks", _copy_settings),
    ClonedRows(
        user_providers,
        "replaying_config",
        "the OAuth providers with their addresses and scopes, without credentials, switched off",
        _copy_provider,
        list_abilities=_list_abilities,
    ),
    *never_clone("end users and their sessions", "users", "user_identities", "user_sessions", "user_mcp_codes"),
    *never_clone("credentials of end users", "user_codes", "user_totp", "user_recovery_codes", "user_passkeys"),
    *never_clone("sign-ins and invitations under way", "user_challenges", "user_invitations"),
    *never_clone("history", "user_hook_calls"),
)
