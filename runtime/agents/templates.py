"""Templates: text with placeholders that name a value of a run. They look up and write down; they run nothing.

`{{ state.a.b }}`, `{{ input.x }}`, and in the arguments of a map `{{ item }}`; `{{ state.rows.0.id }}` goes into a
list. The two braces themselves are written `{{ "{{" }}`; `}}` needs no such care. What a value holds is never read
as a template.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_CHARACTERS = 1_000_000
MAX_CHARACTERS_OF_EACH = 8_000_000
"""Of what one tree becomes for all items of a list together."""

_OPEN = "{{"
_LITERAL = re.compile(r'\{\{\s*"\{\{"\s*\}\}')
# What a key may be made of, in any script; without what would look as if something were worked out.
_NAME = re.compile(r"\{\{\s*((?:state|input|item)(?:\.[\w$@:/-]+)*)\s*\}\}")

# What somebody took for a placeholder.
_SINGLE = re.compile(r"(?<!\{)\{\s*(?:state|input|item)(?:\.[\w$@:/-]+)*\s*\}(?!\})")

# The parts of a placeholder: ("state", "rows", "0", "id").
Name = tuple[str, ...]


class TemplateError(Exception):
    """A template, or what would become of it, is not right; the text says why, without the values."""


class TemplateInvalid(TemplateError):
    """The text is no template."""


class TemplateMissing(TemplateError):
    """A placeholder names what is not there: `name` as it is written."""

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
        """The placeholder that the whole text is, if it is one: its value then keeps its type in `rendered`."""

    @property
    def single_brace(self) -> str | None:
        """The first `{state.x}` of the text, with one brace where placeholders have two; None where there is none."""
        found = (_SINGLE.search(piece) for piece in self.pieces if isinstance(piece, str))
        return next((match[0] for match in found if match), None)

    def render(self, values: Mapping[str, Any]) -> str:
        """The text with its values: strings as they are, all else as compact JSON. `values` maps root to value.

        Raises TemplateMissing, TemplateTooLarge.
        """
        return _Renderer(values).render_text(self)


def parse_names(text: str) -> tuple[Name, ...]:
    """What a template's placeholders name. Raises TemplateInvalid."""
    return Template(text).names


def fill_tree(tree: Any, values: Mapping[str, Any]) -> Any:
    """A JSON tree whose strings are templates, with their values; keys stay as they are.

    A string that is one placeholder and nothing else becomes its value, whatever type that is; such a value is shared
    with `values`, not copied. The tree is one that was validated: its depth is bounded. Raises what `Template` and
    `render` raise; the bound is on all of the result.
    """
    return _Renderer(values).render_tree(tree)


def fill_each(tree: Any, values: Mapping[str, Any], items: Iterable[Any]) -> list[Any]:
    """The same once for each item, which the tree calls `item`. The bound is on all of the results together."""
    renderer, results = _Renderer(values, MAX_CHARACTERS_OF_EACH), []
    for item in items:
        renderer.values = {**values, "item": item}
        results.append(renderer.render_tree(tree))
    return results


def _parse_pieces(text: str) -> tuple[str | Name, ...]:
    pieces: list[str | Name] = []
    done = 0
    while (start := text.find(_OPEN, done)) >= 0:
        if start > done:
            pieces.append(text[done:start])
        if found := _NAME.match(text, start):
            pieces.append(tuple(found[1].split(".")))
        elif found := _LITERAL.match(text, start):
            pieces.append(_OPEN)
        else:
            raise TemplateInvalid(
                f"{_OPEN} at character {start + 1} begins no placeholder such as {{{{ state.x }}}} or "
                f'{{{{ input.x }}}}; the braces themselves are written {{{{ "{{{{" }}}}'
            )
        done = found.end()
    if done < len(text):
        pieces.append(text[done:])
    return tuple(pieces)


def _look_up(name: Name, values: Mapping[str, Any]) -> Any:
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


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as exc:
        raise TemplateTooLarge("a value is nested too deeply to be written") from exc


class _Renderer:
    """One rendering: it counts what it has written, so that no number of placeholders gets past the bound."""

    def __init__(self, values: Mapping[str, Any], most: int = MAX_CHARACTERS) -> None:
        self.values = values
        self._most = self._left = most

    def render_text(self, template: Template) -> str:
        return "".join(
            self._charge_text(_to_text(_look_up(piece, self.values)) if isinstance(piece, tuple) else piece)
            for piece in template.pieces
        )

    def render_tree(self, tree: Any) -> Any:
        if isinstance(tree, str):
            template = Template(tree)
            if template.sole is None:
                return self.render_text(template)
            value = _look_up(template.sole, self.values)
            self._charge_text(_to_text(value))
            return value
        if isinstance(tree, list):
            return [self.render_tree(item) for item in tree]
        if isinstance(tree, dict):
            return {key: self.render_tree(value) for key, value in tree.items()}
        return tree

    def _charge_text(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise TemplateTooLarge(f"the result has more than {self._most} characters")
        return text
