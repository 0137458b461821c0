"""The arguments and results of the tools of the key-value store."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.tools.core.patterns import Pattern
from baobab.tools.kv.rules import Level


class Keys(TypedDict):
    keys: list[str]
    cursor: str | None


class Caps(TypedDict):
    max_ops_per_sec: int | None
    max_storage_bytes: int | None
    max_keys_total: int | None
    max_value_bytes: int


class Stats(TypedDict):
    keys_total: int
    bytes_used: int
    ops_per_sec: int | None
    limit: Caps


class Flushed(TypedDict):
    deleted: int


class Refusal(TypedDict):
    at: datetime
    method: str
    path: str
    status_code: int
    error_code: str | None
    key: str | None


class Refusals(TypedDict):
    entries: list[Refusal]


class FunctionKey(TypedDict):
    function_key: str


class ItemResult(TypedDict):
    value: NotRequired[Any]
    ok: NotRequired[Literal[True]]
    deleted: NotRequired[int]
    error: NotRequired[str]
    message: NotRequired[str]


class BatchResult(TypedDict):
    results: list[ItemResult]


class Stored(TypedDict):
    value: Any


class TimeToLive(TypedDict):
    ttl: int | None


class Existence(TypedDict):
    exists: bool


class Deletion(TypedDict):
    deleted: Annotated[int, Field(ge=0, le=2)]


class Count(TypedDict):
    value: int


class Wrote(TypedDict):
    wrote: bool


class Swapped(TypedDict):
    swapped: bool


class Applied(TypedDict):
    applied: bool


class ExposeRule(TypedDict):
    pattern: str
    read: Level
    write: Level
    order: int


class KeyAccess(TypedDict):
    """The callers who may read, or write, one key by the rules."""

    level: Annotated[
        Level, Field(description="Who may: anybody (`public`), signed-in users (`authed`), or nobody (`deny`).")
    ]
    rule: Annotated[str | None, Field(description="The pattern that decides so; null where none matches the key.")]
    owner_rule: Annotated[
        str | None, Field(description="The pattern that lets the user in whom the key names, whatever `level` says.")
    ]


class AccessToKey(TypedDict):
    read: KeyAccess
    write: KeyAccess


class ExposeRules(TypedDict):
    """The rules; `warnings` name those at `owner` whose keys another rule opens to others."""

    rules: list[ExposeRule]
    warnings: NotRequired[list[str]]
    access: NotRequired[Annotated[AccessToKey, Field(description="Where a `key` was given: who may use that one.")]]


class RuleDeleted(TypedDict):
    deleted: Annotated[int, Field(ge=0, le=1)]


@with_config(ConfigDict(extra="forbid", strict=True))
class NewRule(TypedDict):
    pattern: Pattern
    read: Level | bool
    write: Level | bool
