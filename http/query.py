"""Parses query strings into the types of each parameter's schema."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from baobab.tools.core.call import Tool
from baobab.tools.core.errors import BadRequest, UnknownField

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_MOST = 200

Reader = Callable[[str], Any]


def build_readers(tool: Tool) -> Mapping[str, Reader]:
    """Returns the reader of each query parameter of a tool, which converts its text. A text that cannot be converted
    stays a text, so that the validation's error names the field.
    """
    properties = tool.input_schema["properties"]
    return {name: _build_reader(properties[name]) for name in (tool.rest.query_parameters if tool.rest else ())}


def read_query(
    query: bytes,
    readers: Mapping[str, Reader],
    *,
    ignores_unknown: bool = False,
    further: str | None = None,
    instead_of_unknown: str = "",
) -> dict[str, Any]:
    """Returns the arguments of a query string. Raises BadRequest, and UnknownField unless unknown fields are ignored.

    further: the argument that collects unknown fields by name, each as one text or as a list of texts.
    instead_of_unknown: what the error adds to its remedy.
    """
    values: dict[str, Any] = {}
    if not query:
        return values
    pairs = query.split(b"&")
    if len(pairs) > _MOST:
        raise BadRequest("The query string has too many parameters.")
    for pair in pairs:
        if not pair:
            continue
        raw_name, _, raw_value = pair.partition(b"=")
        name = _decode_text(raw_name)
        reader = readers.get(name)
        if reader is None:
            if further is not None:
                _add_text(values.setdefault(further, {}), name, _decode_text(raw_value))
                continue
            if ignores_unknown:
                continue
            names = ", ".join(f"`{each}`" for each in readers) or "none"
            correction = f"Remove it or correct its name; the query parameters are {names}."
            raise UnknownField(
                f"`{name[:60]}` is not a query parameter of this operation.",
                remediation=f"{correction} {instead_of_unknown}".rstrip(),
            )
        if name in values:
            raise BadRequest(f"`{name}` is in the query string twice.", remediation="Give each parameter once.")
        values[name] = reader(_decode_text(raw_value))
    return values


def _add_text(texts: dict[str, Any], name: str, text: str) -> None:
    before = texts.get(name)
    if before is None:
        texts[name] = text
    elif isinstance(before, list):
        before.append(text)
    else:
        texts[name] = [before, text]


def _decode_text(raw: bytes) -> str:
    if b"%" in raw or b"+" in raw:
        raw = unquote_to_bytes(raw.replace(b"+", b" "))
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise BadRequest("The query string is not UTF-8.", remediation="Encode it as UTF-8.") from exc


def _build_reader(schema: Mapping[str, Any]) -> Reader:
    kinds = {schema.get("type"), *(choice.get("type") for choice in schema.get("anyOf", ()))}
    if "integer" in kinds:
        return _parse_integer
    if "number" in kinds:
        return _parse_number
    if "boolean" in kinds:
        return read_boolean
    if "array" in kinds:
        return lambda text: text.split(",") if text else []
    return lambda text: text


def read_boolean(text: str) -> Any:
    return _BOOLEANS.get(text, text)


def _parse_integer(text: str) -> Any:
    return int(text) if _INTEGER.fullmatch(text) else text


def _parse_number(text: str) -> Any:
    return float(text) if _NUMBER.fullmatch(text) else text
