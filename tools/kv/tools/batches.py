"""The batch tool: up to a hundred operations in one request, each with its own result."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema
from pydantic_core import from_json

from baobab.storage.kv import errors as store
from baobab.storage.kv.engine import Delete, Get, Op, OpResult, Set
from baobab.tools.core import AppId, BaobabError, Call, Guard, Rest
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.changes import NOTHING, Change, describe_change
from baobab.tools.core.guard.escaping import escape_text
from baobab.tools.kv.access import ExposedAccess, rule_book
from baobab.tools.kv.errors import MAX_VALUE_BYTES, KeyInvalid, ValueTooLarge
from baobab.tools.kv.keys import MAX_KEY, check_key, encode_value, name_keys
from baobab.tools.kv.own_keys import keep_outside_keys, note_keys
from baobab.tools.kv.rules import RuleBook
from baobab.tools.kv.schemas import BatchResult, ItemResult
from baobab.tools.kv.telling import tell_changes
from baobab.tools.kv.tools.entries import DURABLE_TTL, quota, refusal
from baobab.tools.kv.toolset import KV_ENVELOPE, WRITTEN, kv

MAX_OPS = 100
_MAX_BODY = MAX_OPS * (MAX_VALUE_BYTES + 2048)

_OP_SCHEMA = {
    "type": "object",
    "properties": {
        "op": {"enum": ["get", "set", "del"]},
        "key": {"type": "string", "maxLength": MAX_KEY},
        "value": {"description": "Any JSON value; required for set."},
    },
    "required": ["op", "key"],
}
# Types do not validate the items: a malformed one gets an error in its place and does not stop the others.
Item = Annotated[Any, WithJsonSchema(_OP_SCHEMA)]


class _Refused(Exception):
    def __init__(self, error: str, message: str | None = None) -> None:
        self.result: ItemResult = {"error": error, "message": message} if message else {"error": error}


async def _preview_batch(call: Call, app_id: AppId, ops: list[Item]) -> Preview:
    answer = await _answer_unchanged(call, app_id, ops)
    return Preview(await _list_operations(call, ops), await _list_changes(call, app_id, ops), answer)


async def _list_operations(call: Call, ops: list[Item]) -> str:
    """Lists every operation, deletions first, so that the person who decides sees the dangerous ones at once."""
    book = None if call.role else await rule_book(call)
    keys: dict[str, list[str]] = {"del": [], "set": [], "get": []}
    refusals = []
    for item in ops:
        if isinstance(_plan(item, call, book), Get | Set | Delete):
            keys[item["op"]].append(item["key"])
        else:
            refusals.append(item)
    counts = ", ".join(f"{len(names)} {name}" for name, names in keys.items() if names)
    first = f"{len(ops)} operations: {counts or 'none that can be made'}"
    lines = [f"{first}; {len(refusals)} would be refused." if refusals else f"{first}."]
    lines += [f"{name} {escape_text(key)}" for name, names in keys.items() for key in names]
    return "\n".join(lines)


def _say_operations(arguments: Mapping[str, Any]) -> str | None:
    """Returns the deletions first; None for a batch that has operations of no known kind."""
    operations = [op for op in arguments.get("ops") or () if isinstance(op, dict)]
    keys = {kind: [op.get("key") for op in operations if op.get("op") == kind] for kind in ("del", "set", "get")}
    if sum(map(len, keys.values())) != len(arguments.get("ops") or ()) or not keys["del"] + keys["set"]:
        return None
    phrases = [f"delete {name_keys(keys['del'], is_final=True)}"] if keys["del"] else []
    if keys["set"]:
        phrases.append(f"store {name_keys(keys['set'], is_final=bool(keys['del']))}")
    words = ", ".join(phrases)
    return f"{words[0].upper()}{words[1:]}"


async def _list_changes(call: Call, app_id: AppId, ops: list[Item]) -> list[Change]:
    """Returns the change of each operation, in order, without operations that change nothing."""
    book = None if call.role else await rule_book(call)
    writes = [op for op in (_plan(item, call, book) for item in ops) if isinstance(op, Set | Delete)]
    keys = list(dict.fromkeys(op.key for op in writes))
    stored_values = await call.stores.kv.batch(app_id, [Get(key) for key in keys], quota(call)) if keys else []
    present = {key: value for key, value in zip(keys, stored_values, strict=True) if isinstance(value, bytes)}
    changes: list[Change] = []
    for op in writes:
        before = present.get(op.key, NOTHING)
        after = op.value if isinstance(op, Set) else NOTHING
        if before != after:
            changes.append(describe_change(op.key, before, after))
        present.pop(op.key, None)
        if isinstance(op, Set):
            present[op.key] = op.value
    return changes


async def _answer_unchanged(call: Call, app_id: AppId, ops: list[Item]) -> BatchResult | None:
    """Returns the result of a batch that would change nothing, else None.

    Such a batch sets no key, and no key that it deletes is there.
    """
    planned_ops = await _plan_all(call, ops)
    # A deletion reads its key here: somebody could set it between a check and a deletion.
    reads = [Get(op.key) for op in planned_ops if isinstance(op, Get | Delete)]
    if any(isinstance(op, Set) for op in planned_ops):
        return None
    outcomes = iter(await call.stores.kv.batch(app_id, reads, quota(call)) if reads else ())
    results: list[ItemResult] = []
    for op in planned_ops:
        if isinstance(op, Get):
            results.append(_result(op, next(outcomes)))
        elif not isinstance(op, Set | Delete):
            results.append(op)
        elif next(outcomes) is None:
            results.append({"deleted": 0})
        else:
            return None
    return {"results": results}


@kv.tool(
    "POST /_batch",
    access=ExposedAccess("write", key=None),
    # The effect of its most dangerous operation: a key whose deletions need approval needs it here, too.
    effect="destructive",
    audit=WRITTEN,
    taints=True,
    rest=Rest(
        max_body=_MAX_BODY,
        examples={"ops": [{"op": "set", "key": "a", "value": 1}, {"op": "get", "key": "a"}, {"op": "del", "key": "b"}]},
    ),
    guard=Guard(preview=_preview_batch, outcome=_say_operations),
)
async def kv_batch(call: Call, app_id: AppId, ops: Annotated[list[Item], Field(max_length=MAX_OPS)]) -> BatchResult:
    """Run several operations in order. Each succeeds or fails on its own; results have the same order.

    Their results: get `{value}` (null if absent), set `{ok: true}`, del `{deleted}`, or `{error}`. Values that you set
    expire in 30 days.

    ops: at most 100 of `{op: get | set | del, key, value}`.
    """
    return await _run(call, app_id, await _plan_all(call, ops))


async def _plan_all(call: Call, ops: list[Item]) -> list[Op | ItemResult]:
    """Returns each operation as it will be made, or the error that it is refused with."""
    book = None if call.role else await rule_book(call)
    return [_plan(item, call, book) for item in ops]


async def _run(call: Call, app_id: str, planned_ops: list[Op | ItemResult]) -> BatchResult:
    operations = [op for op in planned_ops if isinstance(op, Get | Set | Delete)]
    await keep_outside_keys(call, *(op.key for op in operations if isinstance(op, Set)))
    written_keys = dict.fromkeys(op.key for op in operations if not isinstance(op, Get))
    async with tell_changes(call, *written_keys) as changes:
        outcomes = await call.stores.kv.batch(app_id, operations, quota(call)) if operations else ()
        for op, outcome in zip(operations, outcomes, strict=True):
            if isinstance(op, Set) and outcome is None:
                changes.note(op.key, op.value)
            elif isinstance(op, Delete) and outcome == 1:
                changes.note(op.key, None)
    await note_keys(call, [op.key for op in operations if isinstance(op, Get)])
    remaining = iter(outcomes)
    results = [_result(op, next(remaining)) if isinstance(op, Get | Set | Delete) else op for op in planned_ops]
    return {"results": results}


def _plan(item: Any, call: Call, book: RuleBook | None) -> Op | ItemResult:
    try:
        return _operation(item, call, book)
    except _Refused as exc:
        return exc.result


def _operation(item: Any, call: Call, book: RuleBook | None) -> Op:
    op = item.get("op") if isinstance(item, dict) else None
    if op not in ("get", "set", "del"):
        raise _Refused("invalid op")
    key = item.get("key")
    try:
        check_key(key if isinstance(key, str) else "")
    except KeyInvalid as exc:
        raise _Refused("key_invalid", exc.message) from exc
    if op == "set" and "value" not in item:
        raise _Refused("missing value")
    if book is not None and not book.allows(key, "read" if op == "get" else "write", call.caller):
        raise _Refused("KV_FORBIDDEN")
    if op == "get":
        return Get(key)
    if op == "del":
        return Delete(key)
    try:
        return Set(key, encode_value(item["value"]), DURABLE_TTL)
    except ValueTooLarge as exc:
        raise _Refused(exc.code) from exc
    except ValueError as exc:
        raise _Refused("bad_request", f"value {exc}") from exc


def _result(op: Op, outcome: OpResult) -> ItemResult:
    match outcome:
        case store.KvError():
            error = refusal(outcome)
            if isinstance(error, BaobabError):
                return {"error": KV_ENVELOPE.code(type(error)), "message": error.message}
            return {"error": "store_error", "message": "The store does not answer at the moment."}
        case bytes():
            return {"value": from_json(outcome)}
        case int():
            return {"deleted": outcome}
    return {"value": None} if isinstance(op, Get) else {"ok": True}
