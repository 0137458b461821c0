"""Scopes: what a new key opens, read from the present form of the request or from the older one."""

from collections.abc import Sequence
from typing import Literal

from baobab.tools.api_keys.errors import KeyScopesUnclear
from baobab.tools.core.auth import keys
from baobab.tools.core.errors import MissingField

ACCOUNT, GATEWAY, SUBSTRATE = "*", "ai:gateway", "substrate"

KeyScope = Literal["account", "app"]
Additional = Literal["ai:gateway", "substrate"]
Legacy = Literal["*", "ai:gateway", "substrate"]
Reach = Literal["app", "substrate", "both"]


def build_scopes(
    key_scope: KeyScope | None,
    target_app_id: str | None,
    additional: Sequence[Additional],
    legacy: Sequence[Legacy] | None,
    reach: Reach | None,
) -> list[str]:
    """Returns the scopes to store. Raises KeyScopesUnclear rather than give a key more than was clearly requested."""
    if legacy is not None:
        if key_scope or target_app_id or additional or reach:
            raise KeyScopesUnclear("`scopes` is the older form, and cannot be combined with other fields.")
        return _single_purpose([str(scope) for scope in legacy])
    if reach == "both":
        raise KeyScopesUnclear("`scope: both` would be one key for two systems: make two keys.")
    if reach == "substrate":
        # `account` is the default of `key_scope`, so it does no harm here.
        if key_scope == "app" or target_app_id or additional:
            raise KeyScopesUnclear("`scope: substrate` cannot be combined with other fields.")
        return [SUBSTRATE]
    if key_scope == "app":
        if target_app_id is None:
            raise MissingField("`target_app_id` is missing.", remediation="Name the app that the key is for.")
        return _single_purpose([f"app:{target_app_id}", GATEWAY, *additional])
    if target_app_id is not None:
        # Falling back to the default here would hand out the whole account instead of one app.
        raise KeyScopesUnclear("`target_app_id` goes with `key_scope: app`.")
    return _single_purpose([ACCOUNT, *additional])


def scope_kind(scopes: Sequence[str]) -> str:
    """Returns the prefix of the key's text."""
    return keys.SUBSTRATE if SUBSTRATE in scopes else keys.SERVICE


def has_scope(scopes: Sequence[str], scope_filter: str) -> bool:
    """Returns whether a key matches a filter: a scope, or `account` or `app` for all keys of that kind."""
    match scope_filter:
        case "account":
            return ACCOUNT in scopes
        case "app":
            return any(scope.startswith("app:") for scope in scopes)
        case _:
            return scope_filter in scopes


def _single_purpose(scopes: Sequence[str]) -> list[str]:
    unique = list(dict.fromkeys(scopes))
    if SUBSTRATE in unique and len(unique) > 1:
        raise KeyScopesUnclear(
            "`substrate` cannot be combined with other scopes: a substrate key opens only the substrate."
        )
    return unique
