"""Tools for single keys."""

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field
from pydantic_core import from_json

from baobab.storage.kv import errors as store
from baobab.storage.kv.engine import ABSENT, Quota, Tier
from baobab.storage.kv.json_equality import matches
from baobab.tools.core import OMITTED, AppId, AppMigrating, BaobabError, Call, Guard, Mcp, Rest
from baobab.tools.core.binding import Encoded
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.core.guard.changes import NOTHING, describe_change
from baobab.tools.core.guard.wording import quote_text
from baobab.tools.kv.access import ExposedAccess
from baobab.tools.kv.errors import (
    CounterOverflow,
    KeyInvalid,
    KeyNotFound,
    KeySegmentEmpty,
    KeysExhausted,
    NotAnInteger,
    StorageFull,
    ValueTooLarge,
)
from baobab.tools.kv.keys import Key, Value, name_keys
from baobab.tools.kv.own_keys import keep_outside_keys, note_keys
from baobab.tools.kv.schemas import Applied, Count, Deletion, Existence, Stored, Swapped, TimeToLive, Wrote
from baobab.tools.kv.telling import tell_changes
from baobab.tools.kv.toolset import WRITTEN, kv

DURABLE_TTL = 30 * 86400
EPHEMERAL_TTL = 3600
MAX_TTL = 10**10
_WHOLE = 2**63 - 1
_DAY = 24 * 3600
# JSON may escape one character as six bytes.
_MAX_BODY = 2 * 2**20

T = TypeVar("T")

Ttl = Annotated[int, Field(ge=1, le=MAX_TTL)]
Step = Annotated[int, Field(ge=-_WHOLE, le=_WHOLE)]

_KEY = (KeyInvalid, KeySegmentEmpty)
_ROOM = (StorageFull, KeysExhausted)


@kv.tool(
    "GET /{key:path}",
    access=ExposedAccess("read"),
    effect="read",
    raises=(*_KEY, KeyNotFound),
    taints=True,
    rest=Rest(alone="value"),
    mcp=Mcp(start=True),
)
async def kv_get(call: Call, app_id: AppId, key: Key, touch: bool = False) -> Stored:
    """Read the value stored under a key.

    touch: restart the entry's time to live.
    """
    value = await call.stores.kv.get(app_id, key, touch)
    if value is None:
        raise KeyNotFound
    await note_keys(call, [key])
    return Encoded(b'{"value":' + value + b"}")  # type: ignore[return-value]  # as JSON already


@kv.tool(
    "GET /{key:path}/ttl",
    access=ExposedAccess("read"),
    effect="read",
    raises=(*_KEY, KeyNotFound),
)
async def kv_ttl(call: Call, app_id: AppId, key: Key) -> TimeToLive:
    """Read in how many seconds a key expires; null if it never does."""
    seconds_left = await call.stores.kv.ttl(app_id, key)
    if seconds_left is ABSENT:
        raise KeyNotFound
    return {"ttl": seconds_left}


@kv.tool(
    "GET /{key:path}/exists",
    access=ExposedAccess("read"),
    effect="read",
    raises=_KEY,
)
async def kv_exists(call: Call, app_id: AppId, key: Key) -> Existence:
    """Tell whether a key exists."""
    return {"exists": await call.stores.kv.exists(app_id, key)}


async def _preview_put(
    call: Call,
    app_id: AppId,
    key: Key,
    value: Value,
    ttl: Ttl | None = OMITTED,
    ephemeral: bool = False,
) -> Preview:
    before = await call.stores.kv.get(app_id, key)
    changes = [describe_change(key, NOTHING if before is None else before, value)]
    if before is None:
        return Preview(f"The key is not there: it would store {_say_size(value)}.", changes)
    text = f"It would replace the value, which has {_say_size(before)}, by one of {_say_size(value)}."
    return Preview(text, changes)


def _say_size(value: bytes) -> str:
    return "1 byte" if len(value) == 1 else f"{len(value)} bytes"


@kv.tool(
    "PUT /{key:path}",
    access=ExposedAccess("write"),
    effect="write",
    raises=(*_KEY, *_ROOM, ValueTooLarge),
    audit=WRITTEN,
    rest=Rest(status=204, max_body=_MAX_BODY, examples={"value": {"items": [1, 2]}, "ttl": 3600}),
    mcp=Mcp(start=True),
    guard=Guard(
        preview=_preview_put,
        destructive_when="if the key exists already: its value is replaced",
        outcome=lambda arguments: f"Store a value under the key {quote_text(arguments.get('key'))}",
        as_app=AsApp(literal=("ttl", "ephemeral"), fills=("key", "value"), names=("key",)),
    ),
)
async def kv_put(
    call: Call, app_id: AppId, key: Key, value: Value, ttl: Ttl | None = OMITTED, ephemeral: bool = False
) -> None:
    """Store a value under a key, in place of what was there.

    If destructive calls of an API key need approval, so does replacing a value.

    ttl: seconds until it expires; null for never. By default 30 days, or 1 hour if ephemeral.
    ephemeral: keep it in the faster tier, which may be lost when the machine restarts.
    """
    tier = Tier.EPHEMERAL if ephemeral else Tier.DURABLE
    held_back = call.needs_destroy_approval
    await keep_outside_keys(call, key)
    # A caller who needs approval to replace a value writes only if the key is missing, in one atomic step.
    write = call.stores.kv.setnx if held_back else call.stores.kv.put
    async with tell_changes(call, key) as changes:
        wrote = await translate_errors(write(app_id, key, value, lifetime(ttl, ephemeral), tier, quota(call)))
        if wrote is not False:
            changes.note(key, value)
    if held_back and not wrote:
        call.declare_destructive()


async def _preview_delete(call: Call, app_id: AppId, key: Key) -> Preview:
    value = await call.stores.kv.get(app_id, key)
    if value is None:
        return Preview("The key is not there: nothing would be deleted.", [], {"deleted": 0})
    text = f"It would delete the key, whose value has {_say_size(value)}."
    return Preview(text, [describe_change(key, value, NOTHING)])


@kv.tool(
    "DELETE /{key:path}",
    access=ExposedAccess("write"),
    effect="destructive",
    raises=_KEY,
    audit=WRITTEN,
    guard=Guard(
        preview=_preview_delete,
        outcome=lambda arguments: f"Delete {name_keys([arguments.get('key')], is_final=True)}",
        as_app=AsApp(fills=("key",), names=("key",)),
    ),
)
async def kv_delete(call: Call, app_id: AppId, key: Key) -> Deletion:
    """Delete a key. `deleted` is 0 if it did not exist."""
    async with tell_changes(call, key) as changes:
        count = await call.stores.kv.delete(app_id, key)
        if count:
            changes.note(key, None)
    return {"deleted": count}


async def _count(call: Call, app_id: AppId, key: str, step: int, ttl: int | None) -> int:
    async with tell_changes(call, key) as changes:
        counting = call.stores.kv.incr(app_id, key, step, lifetime(ttl, ephemeral=False), quota(call))
        value = await translate_errors(counting)
        changes.note(key, b"%d" % value)
    # A counter that stands at its first step is most likely new: who gave it no lifetime should know that it has one.
    seconds = await call.stores.kv.ttl(app_id, key) if ttl is OMITTED and value == step else None
    if isinstance(seconds, int):
        left = f"{round(seconds / _DAY)} days" if seconds >= 2 * _DAY else f"{seconds} seconds"
        call.warn(f"{key} expires in {left}, and counting on does not change that. kv_expire does (null: never).")
    return value


async def _preview_incr(call: Call, app_id: AppId, key: Key, by: Step = 1, **_fields: Any) -> Preview:
    raw = await call.stores.kv.get(app_id, key)
    if raw is None:
        return Preview("The counter is not there: it would begin at 0.", [describe_change(key, NOTHING, by)])
    value = from_json(raw)
    if type(value) is not int:
        raise NotAnInteger
    return Preview(f"The counter is at {value}.", [describe_change(key, value, value + by)])


async def _preview_decr(call: Call, app_id: AppId, key: Key, by: Step = 1, **_fields: Any) -> Preview:
    return await _preview_incr(call, app_id, key, -by)


def _say_count(verb: str, arguments: Mapping[str, Any]) -> str:
    return f"{verb} the counter {quote_text(arguments.get('key'))} by {arguments.get('by', 1):d}"


@kv.tool(
    "POST /{key:path}/incr",
    access=ExposedAccess("write"),
    effect="write",
    raises=(*_KEY, *_ROOM, NotAnInteger, CounterOverflow),
    audit=WRITTEN,
    rest=Rest(examples={"by": 1}),
    guard=Guard(
        preview=_preview_incr,
        outcome=partial(_say_count, "Raise"),
        as_app=AsApp(literal=("ttl",), fills=("key", "by"), names=("key",)),
    ),
)
async def kv_incr(call: Call, app_id: AppId, key: Key, by: Step = 1, ttl: Ttl | None = OMITTED) -> Count:
    """Raise a counter and return it, atomically. A new one starts at 0 and lives 30 days, unless `ttl` says otherwise.

    by: how much; may be negative.
    ttl: seconds that a new counter lives; null for ever. One that exists keeps its own.
    """
    return {"value": await _count(call, app_id, key, by, ttl)}


@kv.tool(
    "POST /{key:path}/decr",
    access=ExposedAccess("write"),
    effect="write",
    raises=(*_KEY, *_ROOM, NotAnInteger, CounterOverflow),
    audit=WRITTEN,
    rest=Rest(examples={"by": 1}),
    guard=Guard(
        preview=_preview_decr,
        outcome=partial(_say_count, "Lower"),
        as_app=AsApp(literal=("ttl",), fills=("key", "by"), names=("key",)),
    ),
)
async def kv_decr(call: Call, app_id: AppId, key: Key, by: Step = 1, ttl: Ttl | None = OMITTED) -> Count:
    """Lower a counter and return it, atomically. A new one starts at 0 and lives 30 days, unless `ttl` says otherwise.

    by: how much; may be negative.
    ttl: seconds that a new counter lives; null for ever. One that exists keeps its own.
    """
    return {"value": await _count(call, app_id, key, -by, ttl)}


@kv.tool(
    "POST /{key:path}/setnx",
    access=ExposedAccess("write"),
    effect="write",
    raises=(*_KEY, *_ROOM, ValueTooLarge),
    audit=WRITTEN,
    rest=Rest(
        status=lambda result: 201 if result["wrote"] else 200,
        statuses=(201, 200),
        max_body=_MAX_BODY,
        examples={"value": "worker-7", "ttl": 30},
    ),
)
async def kv_setnx(
    call: Call, app_id: AppId, key: Key, value: Value, ttl: Ttl | None = OMITTED, ephemeral: bool = False
) -> Wrote:
    """Store a value only if the key does not exist; of several callers at once, one wins.

    ttl: seconds until it expires; null for never. By default 30 days, or 1 hour if ephemeral.
    ephemeral: keep it in the faster tier, which may be lost when the machine restarts.
    """
    tier = Tier.EPHEMERAL if ephemeral else Tier.DURABLE
    await keep_outside_keys(call, key)
    async with tell_changes(call, key) as changes:
        write = call.stores.kv.setnx(app_id, key, value, lifetime(ttl, ephemeral), tier, quota(call))
        wrote = await translate_errors(write)
        if wrote:
            changes.note(key, value)
    return {"wrote": wrote}


@kv.tool(
    "POST /{key:path}/cas",
    access=ExposedAccess("write"),
    effect="write",
    raises=(*_KEY, *_ROOM, ValueTooLarge),
    audit=WRITTEN,
    rest=Rest(max_body=_MAX_BODY, examples={"expected": {"stock": 3}, "next": {"stock": 2}}),
    guard=Guard(
        destructive_when="if it replaces a value",
        as_app=AsApp(fills=("key", "expected", "next"), names=("key",)),
    ),
)
async def kv_cas(call: Call, app_id: AppId, key: Key, expected: Value, next: Value) -> Swapped:
    """Replace a value only if it is still the expected one; the entry keeps its remaining time to live.

    expected: compared as JSON, in any order of fields; null means that the key must not exist.
    next: the value to store.
    """
    await keep_outside_keys(call, key)
    if call.needs_destroy_approval:
        # A missing key is stored at once; replacing a value needs approval.
        kv_of_app = call.stores.kv
        if matches(None, expected):
            async with tell_changes(call, key) as changes:
                write = kv_of_app.setnx(app_id, key, next, DURABLE_TTL, Tier.DURABLE, quota(call))
                wrote = await translate_errors(write)
                if wrote:
                    changes.note(key, next)
            if wrote:
                return {"swapped": True}
        before = await kv_of_app.get(app_id, key)
        if before is not None and matches(before, expected):
            call.declare_destructive()
        return {"swapped": False}
    async with tell_changes(call, key) as changes:
        swap = call.stores.kv.cas(app_id, key, expected, next, DURABLE_TTL, quota(call))
        was_swapped = await translate_errors(swap)
        if was_swapped:
            changes.note(key, next)
    return {"swapped": was_swapped}


async def _preview_expire(call: Call, app_id: AppId, key: Key, ttl: int | None) -> str:
    value = await call.stores.kv.get(app_id, key)
    if value is None:
        return "The key is not there: nothing would change."
    when = "never" if ttl is None else "at once" if ttl == 0 else f"in {ttl} seconds"
    return f"The key, whose value has {len(value)} bytes, would expire {when}."


@kv.tool(
    "POST /{key:path}/expire",
    access=ExposedAccess("write"),
    # A lifetime of 0 deletes.
    effect="destructive",
    raises=_KEY,
    audit=WRITTEN,
    rest=Rest(examples={"ttl": 60}),
    guard=Guard(preview=_preview_expire),
)
async def kv_expire(
    call: Call, app_id: AppId, key: Key, ttl: Annotated[int, Field(ge=0, le=MAX_TTL)] | None
) -> Applied:
    """Set when a key expires. `applied` is false if it does not exist.

    ttl: seconds from now, 0 to delete it at once, or null for never.
    """
    async with tell_changes(call, key) as changes:
        is_there = await call.stores.kv.expire(app_id, key, ttl)
        if is_there and ttl == 0:
            changes.note(key, None)
    return {"applied": is_there}


def lifetime(ttl: int | None, ephemeral: Literal[True, False]) -> int | None:
    if ttl is OMITTED:
        return EPHEMERAL_TTL if ephemeral else DURABLE_TTL
    return ttl


def quota(call: Call) -> Quota:
    plan = call.require_app().plan
    return Quota(plan.kv_keys, plan.kv_bytes)


async def translate_errors(write: Awaitable[T]) -> T:
    try:
        return await write
    except store.KvError as exc:
        raise refusal(exc) from exc


def refusal(error: store.KvError) -> BaobabError | store.KvError:
    """Translates the store's errors to this toolset's; the registry translates outages of the store."""
    match error:
        case store.SpaceFrozen():
            return AppMigrating()
        case store.NotAnInteger():
            return NotAnInteger()
        case store.IntegerOverflow():
            return CounterOverflow()
        case store.StorageFull():
            return StorageFull(details={"used_bytes": error.used_bytes, "cap_bytes": error.cap})
        case store.KeysExhausted():
            return KeysExhausted(details={"keys": error.keys, "cap": error.cap})
    return error
