"""The members of `ctx`, each as calls of tools."""

import base64
import binascii
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from sqlalchemy import select

from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppMigrating, BaobabError, Caller
from baobab.tools.core.auth.callers import ScopedKey
from baobab.tools.core.stream import Body
from baobab.tools.core.types import encode_json
from baobab.tools.functions.errors import SqlMissing, SubstrateUnlinked
from baobab.tools.functions.identity import key_of_functions
from baobab.tools.functions.live import FunctionCache
from baobab.tools.functions.tables import FREEZES, claims, steps

if TYPE_CHECKING:
    from baobab.tools.functions.host import FunctionHost

Work = Callable[..., Awaitable[Any]]
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MOST_INLINE = 2**20
_MOST_BYTES = 5 * 2**20
_LONGEST_KEY, _LONGEST_STEP = 255, 200
_LONGEST_RESULT = 256 * 1024
_BATCH = 100
_NOT_FOUND = 404


class MemberInvalid(ValueError):
    """A member was called with arguments that it does not take. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member: what it does, how many arguments it takes, and which calls of it change nothing."""

    work: Work
    most: int
    reads: Callable[[Sequence[Any]], bool]


MEMBERS: dict[str, Member] = {}


def _always(arguments: Sequence[Any]) -> bool:
    del arguments
    return True


def _never(arguments: Sequence[Any]) -> bool:
    del arguments
    return False


def _member(name: str, most: int, *, reads: bool | Callable[[Sequence[Any]], bool] = False) -> Callable[[Work], Work]:
    def register(work: Work) -> Work:
        MEMBERS[name] = Member(work, most, reads if callable(reads) else _always if reads else _never)
        return work

    return register


def read_user_id(value: Any) -> str:
    """Returns the id of a user. Raises MemberInvalid."""
    if not isinstance(value, str) or not _UUID.fullmatch(value.lower()):
        raise MemberInvalid("the user is named by their id (uuid)")
    return value.lower()


def _text(value: Any, what: str, most: int = 4096) -> str:
    if not isinstance(value, str) or not value or len(value) > most or "\0" in value:
        raise MemberInvalid(f"{what} is a text of 1 to {most} characters")
    return value


def _options(value: Any, *names: str) -> dict[str, Any]:
    """Returns the options that were given_options, without those that are null."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MemberInvalid("the options are an object")
    if foreign := sorted(set(value) - set(names)):
        raise MemberInvalid(f"there is no option {foreign[0][:60]!r}; there are {', '.join(names)}")
    return {name: value[name] for name in names if value.get(name) is not None}


async def _or_null(work: Awaitable[Any]) -> Any:
    """Returns null for what is not there."""
    try:
        return await work
    except BaobabError as error:
        if error.status != _NOT_FOUND or isinstance(error, AppMigrating):
            raise
        return None


# Rows.


@_member("db.query", 2, reads=True)
async def _query(host: "FunctionHost", caller: Caller, sql: Any, params: Any = None) -> Any:
    if not host.has_tool("data_sql"):
        raise SqlMissing
    arguments: dict[str, Any] = {"sql": _text(sql, "the statement", 100_000), "params": params or []}
    if host.invocation.read_only:
        if not host.takes("data_sql", "read_only"):
            raise SqlMissing("This server cannot keep statements from writing, and agent_tool_mode is read_only.")
        arguments["read_only"] = True
    return await host.use("data_sql", caller, **arguments)


# Keys. They are opened by the app's function key, whoever calls.


async def _kv(host: "FunctionHost", tool: str, **arguments: Any) -> Any:
    return await host.use(tool, key_of_functions(host.invocation.app), **arguments)


def _is_plain_get(arguments: Sequence[Any]) -> bool:
    return len(arguments) < 2 or not (isinstance(arguments[1], Mapping) and arguments[1].get("touch"))


@_member("kv.get", 2, reads=_is_plain_get)
async def _kv_get(host: "FunctionHost", _caller: Caller, key: Any, options: Any = None) -> Any:
    entry = await _or_null(_kv(host, "kv_get", key=_text(key, "the key"), **_options(options, "touch")))
    return None if entry is None else entry["value"]


@_member("kv.set", 3)
async def _kv_set(host: "FunctionHost", _caller: Caller, key: Any, value: Any = None, options: Any = None) -> Any:
    given_options = _options(options, "ttl", "ephemeral")
    if isinstance(options, Mapping) and "ttl" in options and options["ttl"] is None:
        given_options["ttl"] = None
    await _kv(host, "kv_put", key=_text(key, "the key"), value=value, **given_options)
    return True


@_member("kv.setex", 3)
async def _kv_setex(host: "FunctionHost", _caller: Caller, key: Any, seconds: Any = None, value: Any = None) -> Any:
    await _kv(host, "kv_put", key=_text(key, "the key"), value=value, ttl=seconds)
    return True


@_member("kv.setnx", 3)
async def _kv_setnx(host: "FunctionHost", _caller: Caller, key: Any, value: Any = None, options: Any = None) -> Any:
    given_options = _options(options, "ttl", "ephemeral")
    return (await _kv(host, "kv_setnx", key=_text(key, "the key"), value=value, **given_options))["wrote"]


@_member("kv.cas", 3)
async def _kv_cas(host: "FunctionHost", _caller: Caller, key: Any, expected: Any = None, next_: Any = None) -> Any:
    return (await _kv(host, "kv_cas", key=_text(key, "the key"), expected=expected, next=next_))["swapped"]


@_member("kv.del", 1)
async def _kv_del(host: "FunctionHost", _caller: Caller, key: Any) -> Any:
    return (await _kv(host, "kv_delete", key=_text(key, "the key")))["deleted"]


async def _count(host: "FunctionHost", tool: str, key: Any, by: Any, options: Any) -> Any:
    if isinstance(by, Mapping):
        by, options = None, by
    given_options = _options(options, "by", "ttl")
    if by is not None:
        given_options["by"] = by
    return (await _kv(host, tool, key=_text(key, "the key"), **given_options))["value"]


@_member("kv.incr", 3)
async def _kv_incr(host: "FunctionHost", _caller: Caller, key: Any, by: Any = None, options: Any = None) -> Any:
    return await _count(host, "kv_incr", key, by, options)


@_member("kv.decr", 3)
async def _kv_decr(host: "FunctionHost", _caller: Caller, key: Any, by: Any = None, options: Any = None) -> Any:
    return await _count(host, "kv_decr", key, by, options)


@_member("kv.exists", 1, reads=True)
async def _kv_exists(host: "FunctionHost", _caller: Caller, key: Any) -> Any:
    return (await _kv(host, "kv_exists", key=_text(key, "the key")))["exists"]


@_member("kv.ttl", 1, reads=True)
async def _kv_ttl(host: "FunctionHost", _caller: Caller, key: Any) -> Any:
    answer = await _or_null(_kv(host, "kv_ttl", key=_text(key, "the key")))
    return None if answer is None else answer["ttl"]


@_member("kv.expire", 2)
async def _kv_expire(host: "FunctionHost", _caller: Caller, key: Any, seconds: Any = None) -> Any:
    return (await _kv(host, "kv_expire", key=_text(key, "the key"), ttl=seconds))["applied"]


async def _batch(host: "FunctionHost", operations: Sequence[Mapping[str, Any]]) -> list[Any]:
    results: list[Any] = []
    for start in range(0, len(operations), _BATCH):
        results += (await _kv(host, "kv_batch", ops=list(operations[start : start + _BATCH])))["results"]
    for result in results:
        if "error" in result:
            raise MemberInvalid(str(result.get("message") or result["error"]))
    return results


@_member("kv.mget", 1, reads=True)
async def _kv_mget(host: "FunctionHost", _caller: Caller, keys: Any) -> Any:
    if not isinstance(keys, list):
        raise MemberInvalid("the keys are a list")
    results = await _batch(host, [{"op": "get", "key": _text(key, "each key")} for key in keys])
    return [result["value"] for result in results]


@_member("kv.mset", 2)
async def _kv_mset(host: "FunctionHost", _caller: Caller, values: Any, options: Any = None) -> Any:
    if not isinstance(values, Mapping):
        raise MemberInvalid("the values are an object, by key")
    given_options = _options(options, "ttl", "ephemeral")
    if given_options:
        for key, value in values.items():
            await _kv(host, "kv_put", key=_text(key, "each key"), value=value, **given_options)
        return True
    await _batch(host, [{"op": "set", "key": _text(key, "each key"), "value": each} for key, each in values.items()])
    return True


@_member("kv.expose", 2)
async def _kv_expose(host: "FunctionHost", _caller: Caller, pattern: Any, levels: Any = None) -> Any:
    given_options = {"read": "deny", "write": "deny", **_options(levels, "read", "write")}
    await _kv(host, "kv_expose", pattern=_text(pattern, "the pattern"), **given_options)
    return True


@_member("kv.unexpose", 1)
async def _kv_unexpose(host: "FunctionHost", _caller: Caller, pattern: Any) -> Any:
    return (await _kv(host, "kv_unexpose", pattern=_text(pattern, "the pattern")))["deleted"]


@_member("kv.listRules", 0, reads=True)
async def _kv_list_rules(host: "FunctionHost", _caller: Caller) -> Any:
    return (await _kv(host, "kv_expose_list"))["rules"]


# Files: a user's own where the function runs for a user, else the app's.


def _read_file_arguments(first: Any, second: Any, third: Any, fourth: Any) -> dict[str, Any]:
    if isinstance(first, Mapping):
        return _options(first, "filename", "contentType", "sizeBytes", "public")
    given_options = {"filename": first, "contentType": second, "sizeBytes": third}
    return {name: value for name, value in given_options.items() if value is not None} | _options(fourth, "public")


@_member("storage.getUploadUrl", 4)
async def _upload_url(
    host: "FunctionHost", caller: Caller, first: Any, second: Any = None, third: Any = None, fourth: Any = None
) -> Any:
    return await host.use("files_upload", caller, **_read_file_arguments(first, second, third, fourth))


@_member("storage.getDownloadUrl", 1, reads=True)
async def _download_url(host: "FunctionHost", caller: Caller, object_id: Any) -> Any:
    return await host.use("files_download", caller, object_id=_text(object_id, "the file's id"))


def _read_bytes(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, Mapping) and isinstance(content.get("$base64"), str):
        try:
            return base64.b64decode(content["$base64"], validate=True)
        except binascii.Error as exc:
            raise MemberInvalid("the content is no base64") from exc
    raise MemberInvalid("the content is a text or bytes")


@_member("storage.put", 3)
async def _put(host: "FunctionHost", caller: Caller, filename: Any, content: Any = None, options: Any = None) -> Any:
    raw = _read_bytes(content)
    given_options = _options(options, "contentType", "public")
    is_text = isinstance(content, str)
    content_type = given_options.pop("contentType", "text/plain" if is_text else "application/octet-stream")
    named_arguments = {
        "filename": _text(filename, "the file's name", 255),
        "contentType": content_type,
        **given_options,
    }
    if len(raw) <= _MOST_INLINE:
        text = base64.b64encode(raw).decode()
        return await host.use("files_put", caller, content=text, encoding="base64", **named_arguments)
    upload = await host.use("files_upload", caller, sizeBytes=len(raw), **named_arguments)
    query = dict(parse_qsl(urlsplit(upload["uploadUrl"]).query))
    query["expires"], query["size"] = int(query.get("expires", 0)), int(query.get("size", 0))

    async def chunks() -> AsyncIterator[bytes]:
        yield raw

    body = Body(chunks(), len(raw), content_type)
    return await host.use("files_store", caller, object_id=upload["objectId"], content=body, **query)


@_member("storage.get", 1, reads=True)
async def _get(host: "FunctionHost", caller: Caller, object_id: Any) -> Any:
    file = await _or_null(host.use("files_locate", caller, object_id=_text(object_id, "the file's id")))
    if file is None:
        return None
    if file["size_bytes"] > _MOST_BYTES:
        raise MemberInvalid(f"the file has more than {_MOST_BYTES} bytes: read it at the address of getDownloadUrl")
    invocation = host.invocation
    reader = await invocation.services.stores_of(invocation.app.region).objects.get(file["store_key"])
    if reader is None:
        return None
    try:
        raw = b"".join([piece async for piece in reader])
    finally:
        await reader.aclose()
    return {"$base64": base64.b64encode(raw).decode()}


@_member("storage.list", 1, reads=True)
async def _list(host: "FunctionHost", caller: Caller, options: Any = None) -> Any:
    return await host.use(
        "files_list", caller, **_options(options, "limit", "cursor", "prefix", "name", "sort", "order")
    )


@_member("storage.delete", 1)
async def _delete(host: "FunctionHost", caller: Caller, object_id: Any) -> Any:
    return await host.use("files_delete", caller, object_id=_text(object_id, "the file's id"))


# Models, at the expense of the app.


def _body(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise MemberInvalid("the request is an object")
    return {name: each for name, each in value.items() if name not in ("app_id", "stream")}


@_member("ai.chat", 1, reads=True)
async def _chat(host: "FunctionHost", caller: Caller, body: Any) -> Any:
    return await host.use("ai_chat", caller, **_body(body))


@_member("ai.embeddings", 1, reads=True)
async def _embeddings(host: "FunctionHost", caller: Caller, body: Any) -> Any:
    return await host.use("ai_embeddings", caller, **_body(body))


@_member("ai.images", 1)
async def _images(host: "FunctionHost", caller: Caller, body: Any) -> Any:
    return await host.use("images_generate", caller, **_body(body))


_MEETINGS = {
    "start": "meetings_start",
    "get": "meetings_get",
    "list": "meetings_list",
    "stop": "meetings_stop",
    "estimate": "meetings_estimate",
    "getTranscript": "meetings_transcript",
    "usage": "meetings_usage",
}
_BY_ID = frozenset({"get", "stop", "getTranscript"})


def _is_reading_meetings(arguments: Sequence[Any]) -> bool:
    return bool(arguments) and arguments[0] not in ("start", "stop")


@_member("ai.meetings", 2, reads=_is_reading_meetings)
async def _meetings(host: "FunctionHost", _caller: Caller, verb: Any, first: Any = None) -> Any:
    tool = _MEETINGS.get(verb)
    if tool is None:
        raise MemberInvalid(f"there are {', '.join(_MEETINGS)}")
    given_options = {"bot_id": first} if verb in _BY_ID else _body(first or {})
    # Meetings are the app's: their tools are for those who run it.
    return await host.use(tool, host.service, **given_options)


# Accounts of users at other services.


@_member("integrations.execute", 2, reads=True)
async def _execute(host: "FunctionHost", caller: Caller, tool: Any, params: Any = None) -> Any:
    name = "integrations_read" if host.invocation.read_only else "integrations_execute"
    return await host.use(name, caller, toolName=_text(tool, "the tool", 200), params=params or {})


# The substrate of the organisation that the app is linked to, as its owner.

_SUBSTRATE: dict[str, tuple[str, str | None, bool]] = {
    "getEntity": ("substrate_entity", "entity_id", True),
    "findEntities": ("substrate_entities", None, True),
    "searchMemory": ("substrate_search_memory", "q", True),
    "listMemory": ("substrate_memory_list", None, True),
    "listSourceArtifacts": ("substrate_source_artifacts", None, True),
    "getSourceArtifact": ("substrate_source_artifact", "artifact_id", True),
    "listActions": ("substrate_actions", None, True),
    "getAction": ("substrate_action", "action_id", True),
    "patchEntity": ("substrate_update_entity", "entity_id", False),
    "wsTicket": ("substrate_ws_ticket", None, True),
}
_PROPOSED = {
    "upsertEntity": "upsert_entity",
    "deleteEntity": "delete_entity",
    "mergeEntities": "merge_entities",
}


async def _find_substrate(host: "FunctionHost") -> ScopedKey:
    """Returns the caller that opens the linked substrate."""
    invocation = host.invocation
    live = await invocation.services.of(FunctionCache).get(invocation.app.id)
    linked_id = None if live.app_row is None else live.app_row.substrate_organization_id
    if linked_id is None or live.owner_id is None or linked_id != invocation.app.organisation_id:
        raise SubstrateUnlinked
    return ScopedKey(live.owner_id, linked_id, host.row.id, frozenset({"substrate"}))


def _add_substrate(verb: str, tool: str, first_name: str | None, *, reads: bool) -> None:
    async def work(host: "FunctionHost", _caller: Caller, first: Any = None, second: Any = None) -> Any:
        given_options: dict[str, Any] = {}
        if first_name is not None and not isinstance(first, Mapping):
            given_options[first_name] = first
            first = second
        given_options |= _body(first or {})
        return await host.use_at_large(tool, await _find_substrate(host), **given_options)

    _member(f"substrate.{verb}", 2, reads=reads)(work)


def _add_proposal(verb: str, capability: str) -> None:
    async def work(host: "FunctionHost", caller: Caller, payload: Any = None, options: Any = None) -> Any:
        return await _propose(host, caller, capability, payload, options)

    _member(f"substrate.{verb}", 2)(work)


@_member("substrate.propose", 3)
async def _propose(
    host: "FunctionHost", _caller: Caller, capability: Any, payload: Any = None, options: Any = None
) -> Any:
    given_options = _options(options, "idempotency_key")
    named_arguments = {
        "capability": _text(capability, "the capability", 200),
        "payload": payload or {},
        **given_options,
    }
    return await host.use_at_large("substrate_propose", await _find_substrate(host), **named_arguments)


for _verb, (_tool, _first, _reads) in _SUBSTRATE.items():
    _add_substrate(_verb, _tool, _first, reads=_reads)
for _verb, _capability in _PROPOSED.items():
    _add_proposal(_verb, _capability)


# What is done once.


@_member("idempotency.claim", 2)
async def _claim(host: "FunctionHost", _caller: Caller, key: Any, options: Any = None) -> Any:
    given_options = _options(options, "scope", "ttlSeconds")
    seconds = given_options.get("ttlSeconds")
    if seconds is not None and (not isinstance(seconds, (int, float)) or not 0 < seconds <= 10**9):
        raise MemberInvalid("ttlSeconds is a number of seconds above 0")
    invocation = host.invocation
    services, app = invocation.services, invocation.app
    now = services.clock.now()
    row = {
        "app_id": app.id,
        "scope": _text(given_options.get("scope", "default"), "the scope", _LONGEST_KEY),
        "key": _text(key, "the key", _LONGEST_KEY),
        "expires_at": None if seconds is None else now + timedelta(seconds=seconds),
        "created_at": now,
    }
    database = services.stores_of(app.region).database
    claiming = build_upsert(database.dialect, claims).values(row)
    claiming = claiming.on_conflict_do_update(
        index_elements=["app_id", "scope", "key"],
        set_={"expires_at": row["expires_at"], "created_at": now},
        where=claims.c.expires_at <= now,
    )
    async with database.writing_unit(lock=app.id) as unit:
        await FREEZES.require_thawed(unit.execute, app.id)
        return bool((await unit.execute(claiming)).rowcount)


@_member("step.begin", 1, reads=True)
async def _begin_step(host: "FunctionHost", _caller: Caller, name: Any) -> Any:
    invocation = host.invocation
    is_it = (
        steps.c.app_id == invocation.app.id,
        steps.c.invocation_id == invocation.id,
        steps.c.name == _text(name, "the step's name", _LONGEST_STEP),
    )
    async with invocation.services.stores_of(invocation.app.region).database.reading() as connection:
        row: Any = (await connection.execute(select(steps.c.result).where(*is_it))).first()
    return {"done": False} if row is None else {"done": True, "value": row.result["value"]}


@_member("step.end", 2, reads=True)
async def _end_step(host: "FunctionHost", _caller: Caller, name: Any, outcome: Any = None) -> Any:
    if not isinstance(outcome, Mapping) or "value" not in outcome:
        # A step that failed is made again with the next attempt.
        return None
    value = outcome["value"]
    if len(encode_json(value)) > _LONGEST_RESULT:
        raise MemberInvalid(f"a step returns at most {_LONGEST_RESULT} bytes as JSON")
    invocation = host.invocation
    database = invocation.services.stores_of(invocation.app.region).database
    row = {
        "app_id": invocation.app.id,
        "invocation_id": invocation.id,
        "name": _text(name, "the step's name", _LONGEST_STEP),
        "result": {"value": value},
        "created_at": invocation.services.clock.now(),
    }
    async with database.writing_unit(lock=invocation.app.id) as unit:
        await FREEZES.require_thawed(unit.execute, invocation.app.id)
        adding = build_upsert(database.dialect, steps).values(row).on_conflict_do_nothing()
        is_first = bool((await unit.execute(adding)).rowcount)
    # Another attempt may have ended it meanwhile: all go on with what was first.
    return None if is_first else {"value": (await _begin_step(host, _caller, name))["value"]}
