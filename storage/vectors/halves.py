"""The column type of vectors of 16-bit floats: bytes in Python, pgvector's `halfvec` in Postgres."""

import struct
from collections.abc import Callable
from typing import Any

from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType


class _Halfvec(UserDefinedType[str]):
    """The type without a number of dimensions, so that one column can hold the vectors of every model."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "halfvec"


class HalfVector(TypeDecorator[bytes]):
    """Little-endian 16-bit floats, one after the other: the same bytes in both databases."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_Halfvec() if dialect.name == "postgresql" else LargeBinary())

    def bind_processor(self, dialect: Dialect) -> Callable[[bytes | None], Any] | None:
        return _write_optional if dialect.name == "postgresql" else super().bind_processor(dialect)

    def result_processor(self, dialect: Dialect, coltype: Any) -> Callable[[Any], bytes | None] | None:
        return _read if dialect.name == "postgresql" else super().result_processor(dialect, coltype)


def write_halfvec(vector: bytes) -> str:
    """Returns a vector in pgvector's text form."""
    return "[" + ",".join(map(repr, struct.unpack(f"<{len(vector) // 2}e", vector))) + "]"


def _write_optional(vector: bytes | None) -> str | None:
    return None if vector is None else write_halfvec(vector)


def _read(text: str | None) -> bytes | None:
    if text is None:
        return None
    numbers = [float(number) for number in text[1:-1].split(",")]
    return struct.pack(f"<{len(numbers)}e", *numbers)
