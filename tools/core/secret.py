"""Secrets among arguments: texts that are never shown again, in no summary, event, log or `repr`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import is_typeddict

from baobab.tools.core.types import Text

_LAST_WORD = re.compile(r"(?:^|_)[a-z]+$|[A-Z][a-z]+$")
_WORDS = frozenset({"key", "secret", "token", "password", "passphrase", "credential", "credentials", "authorization"})


class SecretText(str):
    """The text of a secret. Texts for people show `(hidden)` in its place."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(hidden)'"


@dataclass(frozen=True, slots=True)
class Secret(Text):
    """A text that is a secret: `Annotated[str, Secret(500)]`. Its schema says `writeOnly`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = Text.__get_pydantic_core_schema__(self, source, handler)
        return core_schema.no_info_after_validator_function(SecretText, text)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "writeOnly": True}


@dataclass(frozen=True, slots=True)
class NotSecret:
    """Says of a text that is called like a secret that it is none, and why: `Annotated[str, NotSecret("an id")]`."""

    because: str


def holds_secret(hint: Any) -> bool:
    """Returns whether a type is that of a secret, or contains one."""
    if any(isinstance(mark, Secret) for mark in _marks(hint)):
        return True
    objects = (leaf for leaf in _leaves(hint) if is_typeddict(leaf))
    return any(holds_secret(field) for leaf in objects for field in get_type_hints(leaf, include_extras=True).values())


def find_undeclared_secrets(name: str, hint: Any) -> Iterator[str]:
    """Names the texts of a parameter that are called like secrets, and declared neither Secret nor NotSecret."""
    is_declared = any(isinstance(mark, Secret | NotSecret) for mark in _marks(hint))
    if not is_declared and _is_called_like_one(name) and _is_text(hint):
        yield name
    for inner in _leaves(hint):
        if is_typeddict(inner):
            for field, its_hint in get_type_hints(inner, include_extras=True).items():
                yield from (f"{name}.{path}" for path in find_undeclared_secrets(field, its_hint))


def _is_called_like_one(name: str) -> bool:
    """Returns whether the last word of a name is that of a secret: `byokKey`, `refresh_token`, but not `key_id`."""
    last = _LAST_WORD.search(name)
    return last is not None and last[0].strip("_").lower() in _WORDS


def _is_text(hint: Any) -> bool:
    return any(leaf is str for leaf in _leaves(hint))


def _leaves(hint: Any) -> Iterator[Any]:
    """Yields the types that a type hint consists of, without their annotations."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from _leaves(get_args(hint)[0])
    elif origin in (Union, UnionType, list):
        for part in get_args(hint):
            yield from _leaves(part)
    elif origin is not None and getattr(origin, "__name__", "") in ("Required", "NotRequired"):
        yield from _leaves(get_args(hint)[0])
    else:
        yield hint


def _marks(hint: Any) -> Iterator[Any]:
    """Yields the annotations of a type at any depth, except those of an object's fields."""
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    if get_origin(hint) is not None:
        for part in get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint):
            yield from _marks(part)
