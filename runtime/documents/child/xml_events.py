"""Reads XML without its dangerous features: entities, document types and anything that would be fetched."""

from collections.abc import Callable, Iterator
from typing import Any
from xml.parsers import expat

from baobab.runtime.documents.child.refusal import Refused

_DEEPEST = 500


def parse_xml(
    source: bytes,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
    text: Callable[[str], None],
) -> None:
    """Calls back for each element and text. Names come without their namespace. Raises Refused."""
    if not source:
        return
    depth, is_final = 0, True

    def refuse(*_: Any) -> None:
        raise Refused("The document defines a type or entities in its XML, which documents of Office never do.")

    def enter(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise Refused("The document is nested too deeply.")
        start(_drop_namespace(name), {_drop_namespace(key): value for key, value in attributes.items()})

    def leave(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(_drop_namespace(name))

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = enter
    parser.EndElementHandler = leave
    parser.CharacterDataHandler = text
    try:
        parser.Parse(source)
        parser.Parse(b"", is_final)
    except (expat.ExpatError, ValueError, LookupError) as exc:
        raise Refused("The document is damaged: its XML is not well-formed.") from exc


def read_elements(source: bytes, texts: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the elements of a small part with their attributes. For elements named in `texts`, the attribute "" is
    their text.
    """
    elements: list[tuple[str, dict[str, str]]] = []
    inside: list[dict[str, str]] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        elements.append((name, attributes))
        if name in texts:
            attributes[""] = ""
            inside.append(attributes)

    def end(name: str) -> None:
        if name in texts:
            inside.pop()

    def add_text(data: str) -> None:
        if inside:
            inside[-1][""] += data

    parse_xml(source, start, end, add_text)
    yield from elements


def _drop_namespace(name: str) -> str:
    return name.rpartition(" ")[2]
