"""The environment of functions: the app's, the function's own, and what the platform adds."""

import re
from collections.abc import Mapping

from pydantic_core import from_json, to_json

from baobab.storage.secrets import Vault
from baobab.tools.core import Services
from baobab.tools.core.auth.directory import App
from baobab.tools.functions.errors import EnvInvalid
from baobab.tools.functions.schemas import MOST_VALUE, MOST_VARIABLES
from baobab.tools.functions.tables import app_env, functions_table

PLATFORM = "PLATFORM_"
"""What the names of variables begin with that only the platform sets."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_MASK_FROM = 6
"""Characters that a value must have to be taken for a secret in logs: shorter ones are in every text."""


def merge_env(env: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Returns an environment with changes: null removes a variable. Raises EnvInvalid."""
    merged_env = dict(env)
    for name, value in changes.items():
        if name.upper().startswith(PLATFORM):
            raise EnvInvalid(f"`{name[:60]}` begins with `{PLATFORM}`, which is the platform's own.")
        if not _NAME.fullmatch(name):
            raise EnvInvalid(f"`{name[:60]}` is no name of a variable.")
        if value is None:
            merged_env.pop(name, None)
            continue
        if len(value.encode()) > MOST_VALUE:
            raise EnvInvalid(f"The value of `{name}` has more than {MOST_VALUE} bytes.")
        merged_env[name] = str(value)
    if len(merged_env) > MOST_VARIABLES:
        raise EnvInvalid(f"There would be {len(merged_env)} variables; there are at most {MOST_VARIABLES}.")
    return merged_env


def seal_env(vault: Vault, function_id: str, env: Mapping[str, str]) -> str | None:
    if not env:
        return None
    return vault.seal(to_json(dict(env)), f"{functions_table.name}.env:{function_id}")


def open_env(vault: Vault, function_id: str, sealed: str | None) -> dict[str, str]:
    """Returns the environment of a function."""
    if sealed is None:
        return {}
    env: dict[str, str] = from_json(vault.open(sealed, f"{functions_table.name}.env:{function_id}"))
    return env


def seal_app_env(vault: Vault, app_id: str, env: Mapping[str, str]) -> str:
    return vault.seal(to_json(dict(env)), f"{app_env.name}.env:{app_id}")


def open_app_env(vault: Vault, app_id: str, sealed: str | None) -> dict[str, str]:
    """Returns the environment of all functions of an app."""
    if sealed is None:
        return {}
    env: dict[str, str] = from_json(vault.open(sealed, f"{app_env.name}.env:{app_id}"))
    return env


def seal_webhook_secret(vault: Vault, function_id: str, secret: str) -> str:
    return vault.seal(secret.encode(), f"{functions_table.name}.webhook_secret:{function_id}")


def open_webhook_secret(vault: Vault, function_id: str, sealed: str) -> str:
    return vault.open(sealed, f"{functions_table.name}.webhook_secret:{function_id}").decode()


def build_platform_env(services: Services, app: App, default_model: str | None, site_url: str | None) -> dict[str, str]:
    """Returns the variables that the platform sets."""
    env = {
        "PLATFORM_APP_ID": app.id,
        "PLATFORM_API_URL": services.options.base_url,
        "PLATFORM_APP_NAME": app.name,
        "PLATFORM_REGION": app.region,
        "PLATFORM_ANON_KEY": app.anon_key,
    }
    if app.subdomain:
        env["PLATFORM_SUBDOMAIN"] = app.subdomain
    if site_url is not None:
        env["PLATFORM_FRONTEND_URL"] = site_url
    if default_model is not None:
        env["PLATFORM_AI_DEFAULT_MODEL"] = default_model
    return env


class Masks:
    """Takes the values of secrets out of what a function prints."""

    def __init__(self, env: Mapping[str, str]) -> None:
        values = sorted({value for value in env.values() if len(value) >= _MASK_FROM}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, values))) if values else None

    def apply(self, text: str) -> str:
        """Returns a text with `(hidden)` in place of secrets."""
        return text if self._pattern is None else self._pattern.sub("(hidden)", text)

    def apply_to(self, text: str | None) -> str | None:
        return None if text is None else self.apply(text)
