"""Function keys: how an app's own key is made, who was shown it, and when it is void."""

from typing import Any

from sqlalchemy import ColumnElement, Select, select, update

from baobab.storage.clock import Ids
from baobab.storage.secrets import Vault, digest_token
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.call import Call

_UNKNOWN = "unknown"
"""In the place of the account that was shown a key, where that was not written down (migration 0013)."""


def make_function_key(ids: Ids, vault: Vault, app_id: str) -> tuple[str, dict[str, str]]:
    """Makes a key for an app: its text, and what the app's row keeps of it."""
    key = ids.hex(48)
    sealed_key = vault.seal(key.encode(), f"apps.function_key:{app_id}")
    return key, {"function_key": sealed_key, "function_key_digest": digest_token(key)}


async def rotate_function_key(call: Call, app_id: str, *, shown_to: str | None, key_id: str | None) -> str:
    """Replaces an app's function key, on every worker; the new one's text.

    shown_to, key_id: the account that will be shown it, and the API key by which it asked; None for nobody.
    """
    key, sealed_key = make_function_key(call.services.ids, call.services.vault, app_id)
    is_app = apps.c.id == app_id
    old_digest = (await call.execute(select(apps.c.function_key_digest).where(is_app))).scalar_one()
    viewer = {"function_key_account_id": shown_to, "function_key_key_id": key_id}
    await call.execute(update(apps).where(is_app).values(**sealed_key, **viewer))
    await call.services.notices.publish(call.unit, "key", old_digest)
    return key


async def void_function_keys_shown_to(call: Call, organisation_id: str, account_id: str) -> int:
    """Replaces the function keys that an account was shown, or may have been, by ones that nobody has seen.

    Returns how many there were.
    """
    was_shown = apps.c.function_key_account_id.in_((account_id, _UNKNOWN))
    return await _void(call, apps.c.organisation_id == organisation_id, was_shown)


async def void_function_keys_shown_by(call: Call, key_ids: Select[Any]) -> int:
    """Replaces the function keys that were shown to users of these API keys, and returns how many there were."""
    return await _void(call, apps.c.function_key_key_id.in_(key_ids))


async def _void(call: Call, *conditions: ColumnElement[bool]) -> int:
    app_ids: Any = (await call.execute(select(apps.c.id).where(*conditions))).scalars().all()
    for app_id in app_ids:
        await rotate_function_key(call, app_id, shown_to=None, key_id=None)
    return len(app_ids)
