"""The rows of notices: the settings and the channels of an account."""

from typing import Any, cast

from sqlalchemy import exists, select

from baobab.storage.sql.tables import build_upsert
from baobab.tools.approvals.notices.schemas import Channel
from baobab.tools.approvals.notices.tables import notice_channels, notice_settings
from baobab.tools.core import Call

DEFAULTS: dict[str, Any] = {"which": "mine", "digest_minutes": 0}


def account_of(call: Call) -> str:
    return call.account.account_id


def has_channel() -> Any:
    """Returns the condition that the person of a row of `notice_settings` has somewhere to be told."""
    is_usable = (notice_channels.c.account_id == notice_settings.c.account_id, notice_channels.c.confirmed)
    return exists(select(notice_channels.c.id).where(*is_usable))


async def save_settings(call: Call, changes: dict[str, Any]) -> None:
    """Changes the settings of the account; makes them where there are none."""
    row = {"account_id": account_of(call), **DEFAULTS, **changes, "updated_at": call.now}
    saving = build_upsert(call.unit.database.dialect, notice_settings).values(row)
    values = {**changes, "updated_at": call.now}
    await call.execute(saving.on_conflict_do_update(index_elements=["account_id"], set_=values))


def describe_channel(row: Any) -> Channel:
    return cast(Channel, {name: getattr(row, name) for name in Channel.__annotations__})
