"""Templates: text with placeholders for values of a run. Rendering only looks values up; it runs no code.

Placeholders are `{{ state.a.b }}`, `{{ input.x }}`, in the arguments of a map `{{ item }}`, in the title of a call
`{{ arguments.x }}`, and in what a trigger gives to an agent `{{ event.data.x }}`; `{{ state.rows.0.id }}` indexes a
list. Two literal opening braces are written `{{ "{{" }}`; `}}` needs no escape. Values are never parsed as templates.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_CHARACTERS = 1_000_000
MAX_CHARACTERS_OF_EACH = 8_000_000
"""The bound on all results of `fill_each` together."""

_OPEN = "{{"
_LITERAL = re.compile(r'\{\{\s*"\{\{"\s*\}\}')
# Keys may have letters of any script, but nothing that looks like an operator.
_NAME = re.compile(r"\{\{\s*((?:state|input|item|arguments|event)(?:\.[\w$@:/-]+)*)\s*\}\}")

# A placeholder with one brace, which is probably a mistake.
_SINGLE = re.compile(r"(?<!\{)\{\s*(?:state|input|item)(?:\.[\w$@:/-]+)*\s*\}(?!\})")

# The parts of a placeholder: ("state", "rows", "0", "id").
Name = tuple[str, ...]


class TemplateError(Exception):
    """A template is invalid, or cannot be rendered. The text says why, without the values."""


class TemplateInvalid(TemplateError):
    """The text is not a valid template."""


class TemplateMissing(TemplateError):
    """A placeholder names a value that does not exist. name: as it is written."""

    def __init__(self, name: Name) -> None:
        self.name = ".".join(name)
        super().__init__(f"there is no {self.name}")


class TemplateTooLarge(TemplateError):
    """The result has too many characters, or a value in it is nested too deeply to be written."""


class Template:
    """A text, parsed once. `names` are the placeholders in their order, repeated where the text repeats them."""

    def __init__(self, text: str) -> None:
        """Raises TemplateInvalid where two opening braces begin no placeholder."""
        self.pieces = _parse_pieces(text)
        self.names = tuple(piece for piece in self.pieces if isinstance(piece, tuple))
        self.sole = self.names[0] if len(self.names) == len(self.pieces) == 1 else None
        """The placeholder that is the whole text, or None. `fill_tree` keeps the type of its value."""

    @property
    def single_brace(self) -> str | None:
        """The first `{state.x}` of the text, with one brace where placeholders have two; None where there is none."""
        matches = (_SINGLE.search(piece) for piece in self.pieces if isinstance(piece, str))
        return next((match[0] for match in matches if match), None)

    def render(self, values: Mapping[str, Any]) -> str:
        """Renders the text: strings as they are, all else as compact JSON. values: by `state`, `input` and `item`.

        Raises TemplateMissing and TemplateTooLarge.
        """
        return _Renderer(values).render_text(self)


def parse_names(text: str) -> tuple[Name, ...]:
    """Returns the names in a template's placeholders. Raises TemplateInvalid."""
    return Template(text).names


def list_names(tree: Any) -> Iterator[Name]:
    """Yields the names in all templates of a JSON tree, which must have been validated."""
    match tree:
        case str():
            yield from parse_names(tree)
        case dict():
            for value in tree.values():
                yield from list_names(value)
        case list():
            for value in tree:
                yield from list_names(value)


def fill_tree(tree: Any, values: Mapping[str, Any]) -> Any:
    """Renders a JSON tree whose strings are templates; keys stay as they are.

    A string that is one placeholder and nothing else becomes its value, whatever type that is; such a value is shared
    with `values`, not copied. The tree must have been validated, which bounds its depth. Raises what `Template` and
    `render` raise; the bound on characters is for the whole result.
    """
    return _Renderer(values).render_tree(tree)


def fill_each(tree: Any, values: Mapping[str, Any], items: Iterable[Any]) -> list[Any]:
    """Renders a tree once for each item, which its templates call `item`. The bound is on all results together."""
    renderer, results = _Renderer(values, MAX_CHARACTERS_OF_EACH), []
    for item in items:
        renderer.values = {**values, "item": item}
        results.append(renderer.render_tree(tree))
    return results


def _parse_pieces(text: str) -> tuple[str | Name, ...]:
    pieces: list[str | Name] = []
    end = 0
    while (start := text.find(_OPEN, end)) >= 0:
        if start > end:
            pieces.append(text[end:start])
        if match := _NAME.match(text, start):
            pieces.append(tuple(match[1].split(".")))
        elif match := _LITERAL.match(text, start):
            pieces.append(_OPEN)
        else:
            raise TemplateInvalid(
                f"{_OPEN} at character {start + 1} does not begin a placeholder such as {{{{ state.x }}}} or "
                f'{{{{ input.x }}}}; literal braces are written {{{{ "{{{{" }}}}'
            )
        end = match.end()
    if end < len(text):
        pieces.append(text[end:])
    return tuple(pieces)


def look_up(name: Name, values: Mapping[str, Any]) -> Any:
    """Returns the value that a placeholder names. Raises TemplateMissing."""
    value: Any = values
    for part in name:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif (
            isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(value)
        ):
            value = value[int(part)]
        else:
            raise TemplateMissing(name)
    return value


def to_text(value: Any) -> str:
    """Returns a value as it stands within text: a string as it is, all else as compact JSON.

    Raises TemplateTooLarge.
    """
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as exc:
        raise TemplateTooLarge("a value is nested too deeply to be written") from exc


class _Renderer:
    """Renders templates, and counts all characters, so that the bound holds for any number of placeholders."""

    def __init__(self, values: Mapping[str, Any], most: int = MAX_CHARACTERS) -> None:
        self.values = values
        self._most = self._remaining = most

    def render_text(self, template: Template) -> str:
        return "".join(
            self._charge_text(to_text(look_up(piece, self.values)) if isinstance(piece, tuple) else piece)
            for piece in template.pieces
        )

    def render_tree(self, tree: Any) -> Any:
        if isinstance(tree, str):
            template = Template(tree)
            if template.sole is None:
                return self.render_text(template)
            value = look_up(template.sole, self.values)
            self._charge_text(to_text(value))
            return value
        if isinstance(tree, list):
            return [self.render_tree(item) for item in tree]
        if isinstance(tree, dict):
            return {key: self.render_tree(value) for key, value in tree.items()}
        return tree

    def _charge_text(self, text: str) -> str:
        self._remaining -= len(text)
        if self._remaining < 0:
            raise TemplateTooLarge(f"the result has more than {self._most} characters")
        return text
