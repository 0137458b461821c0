"""Asks: the title and the values by which a person recognises a call of a node, as the graph's author chose them.

A title begins with the author's own words. Values come after a colon, on one line, because a stranger may have written
them. The title of a call that pays, sends or deletes has only arguments of that very call, and of these no free text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from baobab.runtime.agents.spec.issue import Issue, quote_name
from baobab.runtime.agents.spec.shape import suggest_name
from baobab.runtime.agents.spec.spec import Ask, MapNode, ToolNode
from baobab.runtime.agents.spec.templates import Name, Template, TemplateError, look_up, parse_names, to_text
from baobab.tools.core.effects import Effect
from baobab.tools.core.guard.escaping import is_seen
from baobab.tools.core.guard.titles import CUT, TitlePart, is_plain, write_line

ARGUMENTS = "arguments"
_LONGEST_OWN = 60
_LONGEST_KEPT = 20_000
"""The most characters of a text that is kept to be shown."""
_SIGNS = "€$£¥"
_CURRENCY = re.compile(rf" ?([A-Z]{{3}}|[{_SIGNS}])(?![A-Za-z])")
_MOST_SAID = 1e12
"""Larger numbers are no amounts that a button could say."""
_SURE: tuple[Effect, ...] = ("destructive", "external")


def is_sure(effect: str) -> bool:
    """Returns whether a call of this effect destroys something or leaves the house, so that its title has no free
    text.
    """
    return effect in _SURE


# --- what a graph may say ---------------------------------------------------------------------------------------------


def find_ask_issues(node: ToolNode | MapNode, effect: Effect, schema: Mapping[str, Any] | None) -> Iterator[Issue]:
    """Finds what is wrong with the `ask` of a node, by paths within the node, but for what every template is checked
    for. schema: of the tool's arguments, by the names of the graph; None where it is not known.
    """
    ask = node.ask
    if ask is None:
        return
    if ask.title is None and not ask.show:
        yield Issue(("ask",), "needs a title, or values to show; leave it out otherwise")
    if ask.title is not None:
        yield from _find_title_issues(node, ask.title, effect, schema)
    for index, path in enumerate(ask.show):
        name = parse_path(path)
        if name is None:
            message = f"{quote_name(path)} is not a path of a value, such as arguments.changes.answer or input.message"
            yield Issue(("ask", "show", index), message)
        elif path in ask.show[:index]:
            yield Issue(("ask", "show", index), f"{quote_name(path)} is listed twice")
        elif (problem := _find_path_problem(node.args_template, schema, name)) is not None:
            yield Issue(("ask", "show", index), problem)


def parse_path(path: str) -> Name | None:
    """Returns the parts of a path of `show`; None if it is none."""
    try:
        template = Template(f"{{{{ {path} }}}}")
    except TemplateError:
        return None
    return template.sole


def _find_title_issues(
    node: ToolNode | MapNode, title: str, effect: Effect, schema: Mapping[str, Any] | None
) -> Iterator[Issue]:
    where = ("ask", "title")
    try:
        template = Template(title)
    except TemplateError:
        # Every template of the graph is checked for this.
        return
    own, names = _split_title(template)[0], template.names
    if not any(character.isalpha() for character in own):
        yield Issue(
            where, 'must begin with words of yours, such as "Answer {{ input.subject }}": values come after them'
        )
    elif ":" in own:
        yield Issue(where, "may have a colon only before its first placeholder: what follows a colon is a stranger's")
    elif len(own) > _LONGEST_OWN:
        yield Issue(where, f"may have at most {_LONGEST_OWN} characters before its first placeholder")
    if not all(is_seen(piece) for text in template.pieces if isinstance(text, str) for piece in text):
        yield Issue(where, "has characters that nobody sees, or that change the order of others; leave them out")
    for name in dict.fromkeys(names):
        if name[0] == ARGUMENTS:
            if (problem := _find_path_problem(node.args_template, schema, name, "write it as text")) is not None:
                yield Issue(where, problem)
        elif is_sure(effect):
            example = f"{ARGUMENTS}.{next(iter(node.args_template), 'amount')}"
            message = (
                f"must not name {'.'.join(name)}: {quote_name(node.tool_ref.name)} may pay, send or delete, so its "
                f"title names only what the call is made with, such as {{{{ {example} }}}}"
            )
            yield Issue(where, message)


def _find_path_problem(
    template: Any, schema: Mapping[str, Any] | None, name: Name, instead: str = "leave it out"
) -> str | None:
    """Returns why a name under `arguments` is no value of the node's call; None if it may be one.

    instead: what to do about a value that is the same in every call.
    """
    if name[0] != ARGUMENTS:
        return None
    if len(name) == 1:
        return "must name one argument, such as arguments.changes.answer"
    for depth, part in enumerate(name[1:], start=1):
        if isinstance(template, str) and has_placeholder(template):
            return _find_schema_problem(schema, name, depth)
        children = template if isinstance(template, dict) else dict(_number(template))
        if part not in children:
            names = [str(child) for child in children]
            listing = f"; there are {', '.join(names[:20])}" if names else ""
            unknown = quote_name(".".join(name[: depth + 1]))
            return f"{unknown} is not in args_template{suggest_name(part[:64], names)}{listing}"
        template, schema = children[part], _step_into(schema, part)
    if not _has_placeholder_within(template):
        return f"{quote_name('.'.join(name))} is the same in every call: {instead}"
    return None


def _number(tree: Any) -> Iterator[tuple[str, Any]]:
    yield from ((str(index), item) for index, item in enumerate(tree if isinstance(tree, list) else ()))


def has_placeholder(text: str) -> bool:
    """Returns whether a text has a placeholder. One that is no template counts as having one."""
    try:
        return bool(parse_names(text))
    except TemplateError:
        return True


def _has_placeholder_within(tree: Any) -> bool:
    if isinstance(tree, str):
        return has_placeholder(tree)
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return any(_has_placeholder_within(child) for child in children)


def _find_schema_problem(schema: Any, name: Name, depth: int) -> str | None:
    """Returns why a value of a schema has nothing under the rest of a name."""
    for place in range(depth, len(name)):
        types = _list_types(schema)
        if types and not types & {"object", "array"}:
            return f"{quote_name('.'.join(name[:place]))} is no object, so it has no {quote_name(name[place])}"
        inner = _step_into(schema, name[place])
        if inner is None and isinstance(schema, dict) and schema.get("additionalProperties") is False:
            return f"{quote_name('.'.join(name[: place + 1]))} is not a field that {name[0]} of this tool have"
        schema = inner
    return None


def _list_types(schema: Any) -> set[str]:
    """Returns the types that a value may have; an empty set where the schema does not say."""
    if not isinstance(schema, Mapping):
        return set()
    variants = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if variants:
        types = [_list_types(variant) for variant in variants]
        return set().union(*types) if all(types) else set()
    of_type = schema.get("type")
    return {of_type} if isinstance(of_type, str) else set(of_type) if isinstance(of_type, list) else set()


def _step_into(schema: Any, part: str) -> Any:
    """Returns the schema of a field or an item; None where it is not known."""
    if not isinstance(schema, Mapping):
        return None
    field = schema.get("properties", {}).get(part)
    further = schema.get("items") if part.isdigit() else schema.get("additionalProperties")
    return field if field is not None else further if isinstance(further, Mapping) else None


# --- what a person reads ----------------------------------------------------------------------------------------------


def keep_ask(ask: Ask | None, values: Mapping[str, Any], longest: int = _LONGEST_KEPT) -> dict[str, Any] | None:
    """Returns what an approval keeps of a node's `ask`: its templates, and the values of the run that they name.

    longest: the most characters of one value; of a longer one, only its beginning is kept.
    """
    if ask is None:
        return None
    names = {*(Template(ask.title).names if ask.title else ()), *filter(None, map(parse_path, ask.show))}
    kept_values: dict[str, Any] = {}
    for name in names:
        if name[0] != ARGUMENTS:
            try:
                value = look_up(name, values)
                text = to_text(value)
            except TemplateError:
                # A title is no reason to fail a run.
                continue
            more = len(text) - longest
            kept_values[".".join(name)] = value if more <= 0 else f"{text[:longest]}… ({more} more characters)"
    return {"title": ask.title, "show": list(ask.show), "values": kept_values}


def write_title(ask: Mapping[str, Any], arguments: Mapping[str, Any], effect: str) -> list[TitlePart] | None:
    """Writes the title of a call: the author's words, and after a colon the values. None if the author gave none.

    ask: as `keep_ask` returns it, with `names` (the tool's own names of arguments by those of the graph, where they
    differ) and `remote` (whether a tool server's tool is called). arguments: of the call, by the tool's own names and
    without secrets.
    """
    if ask["title"] is None:
        return None
    own, rest = _split_title(Template(ask["title"]))
    words = "".join(_write_piece(ask, piece, arguments, sure=is_sure(effect)) for piece in rest)
    line = write_line(words, CUT)
    return [(own, True)] if not line else [(f"{own}: ", True), (line, False)]


def write_button(ask: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Writes what a button says that approves the call: the author's own words of the title, such as `Refund 240 EUR`.

    Of the values only a number follows them, where it stands right behind them and is an argument of the call, with the
    currency that the author writes behind it. A number as text is a text, and anybody may have written that.
    """
    own, rest = _split_title(Template(ask["title"]))
    first = rest[0] if rest else ""
    value = find_value(ask, first, arguments) if isinstance(first, tuple) and first[0] == ARGUMENTS else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST_SAID < value < _MOST_SAID:
        return own
    unit = _CURRENCY.match(rest[1]) if len(rest) > 1 and isinstance(rest[1], str) else None
    amount = to_text(value) if unit is None else f"{to_text(value)} {unit[1]}"
    return f"{own}{amount}" if own[-1:] in _SIGNS else f"{own} {amount}"


def _split_title(template: Template) -> tuple[str, Sequence[str | Name]]:
    """Returns the author's own words, and all from the first placeholder on."""
    first = next((place for place, piece in enumerate(template.pieces) if isinstance(piece, tuple)), None)
    pieces = template.pieces if first is None else template.pieces[:first]
    own = " ".join("".join(str(piece) for piece in pieces).split()).removesuffix(":").rstrip()
    return own, () if first is None else template.pieces[first:]


def _write_piece(ask: Mapping[str, Any], piece: str | Name, arguments: Mapping[str, Any], *, sure: bool) -> str:
    if isinstance(piece, str):
        return piece
    value = find_value(ask, piece, arguments)
    if value is None or (sure and (piece[0] != ARGUMENTS or not is_plain(value))):
        return "…"
    return to_text(value)


def list_shown(ask: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns the values that the author wants to be shown, by their paths; those that are not there are left out."""
    pairs = [(path, find_value(ask, parse_path(path) or (), arguments)) for path in ask["show"]]
    return [(path, value) for path, value in pairs if value is not None]


def find_value(ask: Mapping[str, Any], name: Name, arguments: Mapping[str, Any]) -> Any:
    """Returns the value of a name; None if there is none."""
    if name[:1] != (ARGUMENTS,):
        return ask["values"].get(".".join(name))
    own_names: Mapping[str, str] = ask["names"]
    values = arguments.get(ARGUMENTS, {}) if ask["remote"] else arguments
    try:
        return look_up((own_names.get(name[1], name[1]), *name[2:]), values)
    except TemplateError:
        return None
