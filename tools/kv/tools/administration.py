"""Tools for the whole store: scan, statistics, flush, recent refusals and the function key."""

from typing import Annotated

from pydantic import Field, WithJsonSchema
from sqlalchemy import delete, func, select

from baobab.tools.core import (
    Account,
    AppId,
    AppKey,
    Audit,
    Call,
    Cursor,
    EndUser,
    Guard,
    Rest,
    Text,
    decode_cursor,
    encode_cursor,
)
from baobab.tools.core.auth.function_keys import rotate_function_key
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.core.list_totals import MOST_COUNTED
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.core.types import Json, Moment
from baobab.tools.kv.access import Authenticated, Operator
from baobab.tools.kv.errors import MAX_VALUE_BYTES, ConfirmRequired
from baobab.tools.kv.limits import POLICY
from baobab.tools.kv.own_keys import note_keys
from baobab.tools.kv.schemas import Flushed, FunctionKey, Keys, Refusals, Stats
from baobab.tools.kv.tables import rules_table
from baobab.tools.kv.tools.expose_rules import publish_change
from baobab.tools.kv.toolset import kv

_BEGINNING = "0"
"""The cursor with which clients written for other stores begin a scan."""
_MOST_REFUSALS = 200

Confirmation = Annotated[Json, WithJsonSchema({"type": "boolean", "default": False})]
"""Only true confirms; anything else raises ConfirmRequired, and not an error about its type."""


@kv.tool(
    "GET /_scan",
    access=Operator(),
    effect="read",
    raises=(CursorInvalid,),
    taints=True,
)
async def kv_scan(
    call: Call,
    app_id: AppId,
    prefix: Annotated[str, Text(512)] = "",
    limit: Annotated[int, Field(ge=1, le=1000)] = 100,
    cursor: Cursor | None = None,
) -> Keys:
    """List keys in order. A key that exists during the whole scan is listed exactly once.

    prefix: only keys that start with it.
    limit: keys in one page.
    cursor: the cursor of the previous page; "0" or nothing for the first page.
    """
    vault, listing = call.services.vault, f"kv:{app_id}:{prefix}"
    after = None if cursor in (None, _BEGINNING) else decode_cursor(vault, listing, cursor)[0]
    keys, last = await call.stores.kv.scan(app_id, prefix, limit, after)
    await note_keys(call, keys)
    if (last or after) and call.context.counts_lists:
        first_keys, later = await call.stores.kv.scan(app_id, prefix, MOST_COUNTED, None)
        call.count_list(len(first_keys) + (later is not None), is_exact=later is None)
    return {"keys": keys, "cursor": last and encode_cursor(vault, listing, last)}


@kv.tool(
    "GET /_stats",
    access=Operator(),
    effect="read",
)
async def kv_stats(call: Call, app_id: AppId) -> Stats:
    """Read what the store holds and its limits; null means no limit.

    An entry counts the bytes of its key and of its value as compact JSON.
    """
    plan = call.require_app().plan
    usage = await call.stores.kv.usage(app_id)
    most = plan.kv_ops_per_second
    return {
        "keys_total": usage.keys,
        "bytes_used": usage.bytes,
        "ops_per_sec": None
        if most is None
        else await resolve_answer(call.services.limits.count_used(POLICY, app_id, most, 1)),
        "limit": {
            "max_ops_per_sec": most,
            "max_storage_bytes": plan.kv_bytes,
            "max_keys_total": plan.kv_keys,
            "max_value_bytes": MAX_VALUE_BYTES,
        },
    }


async def _preview_flush(call: Call, app_id: AppId, confirm: Confirmation, include_config: bool) -> str:
    if confirm is not True:
        raise ConfirmRequired
    usage = await call.stores.kv.usage(app_id)
    summary = f"It would delete {usage.keys} keys ({usage.bytes} bytes) of the app {call.require_app().name}"
    if not include_config:
        return f"{summary}, and leave its expose rules."
    query = select(func.count()).where(rules_table.c.app_id == app_id)
    return f"{summary}, and its {(await call.execute(query)).scalar_one()} expose rules."


@kv.tool(
    "POST /_flush",
    access=Operator("admin"),
    effect="destructive",
    raises=(ConfirmRequired,),
    audit=Audit("kv.flush", action="delete", resource="kv"),
    rest=Rest(examples={"confirm": True}),
    guard=Guard(preview=_preview_flush, outcome=lambda _: "Delete every key of the app"),
)
async def kv_flush(call: Call, app_id: AppId, confirm: Confirmation = False, include_config: bool = False) -> Flushed:
    """Delete every key of the app. This cannot be undone.

    confirm: must be true.
    include_config: whether to delete the expose rules, too.
    """
    if confirm is not True:
        raise ConfirmRequired
    if include_config:
        await call.execute(delete(rules_table).where(rules_table.c.app_id == app_id))
        await publish_change(call)
    deleted_count = await call.stores.kv.flush(app_id)
    call.audit.data |= {"deleted": deleted_count, "include_config": include_config}
    await call.emit("kv.flushed", deleted=deleted_count, include_config=include_config)
    return {"deleted": deleted_count}


@kv.tool(
    "GET /_audit_recent",
    access=Authenticated(),
    effect="read",
    taints=True,
)
async def kv_audit_recent(
    call: Call,
    app_id: AppId,
    limit: Annotated[int, Field(ge=1, le=2**31 - 1)] = 50,
    since: Annotated[Moment | None, Field(alias="from")] = None,
    to: Moment | None = None,
) -> Refusals:
    """List the latest refused requests to this store, newest first: what a client did wrong, and on which key.

    A user of the app sees their own only. For calls over MCP or by agents, `method` is `MCP` or `AGENT`, and `path` is
    the tool.

    limit: how many; more than 200 counts as 200. The last 1000 of 7 days are kept.
    since: refusals from this moment on; ISO 8601, UTC if it names no zone.
    to: refusals before this moment; ISO 8601, UTC if it names no zone.
    """
    row_limit = min(limit, _MOST_REFUSALS)
    # Keys and addresses name other users.
    user_id = call.caller.user_id if isinstance(call.caller, EndUser) else None
    rows = await call.services.failures.recent(
        call.stores, app_id, kv.name, row_limit, since=since, to=to, user_id=user_id
    )
    return {
        "entries": [
            {
                "at": row["at"],
                "method": row["method"],
                "path": row["path"],
                "status_code": row["status_code"],
                "error_code": row["error_code"],
                "key": row["subject"],
            }
            for row in rows
        ]
    }


@kv.tool(
    "POST /_rotate_key",
    access=Operator("admin", functions=False),
    effect="destructive",
    audit=Audit("kv.function_key.rotate", resource="function_key"),
    guard=Guard(grants=True),
)
async def kv_rotate_key(call: Call, app_id: AppId) -> FunctionKey:
    """Replace the app's function key. The old one stops working at once. The new one is shown only once.

    A function key opens the key-value store of its app and nothing else: every key, and the expose rules. It is
    replaced by one that nobody has seen when the account that it was shown to leaves the organisation or becomes a
    plain member, or when the API key that asked for it is revoked.
    """
    caller = call.caller
    assert isinstance(caller, (Account, AppKey))
    key = await rotate_function_key(call, app_id, shown_to=caller.account_id, key_id=caller.key_id)
    return {"function_key": key}
