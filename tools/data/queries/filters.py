"""Reads the filters of a query, as PostgREST's clients write them: `age=gte.18`, `or=(a.eq.1,b.is.null)`."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from baobab.tools.core import BadRequest
from baobab.tools.data.errors import InvalidFilter
from baobab.tools.data.expressions import text_search
from baobab.tools.data.expressions.expressions import is_unfinished
from baobab.tools.data.schema.catalogue import Column, Expression, TableInfo
from baobab.tools.data.values.column_types import ColumnType

Where = Mapping[str, str | list[str]]
"""Filters by column, or by `and`, `or`, `not.and`, `not.or`: each one text, or several that must all hold."""

_COMPARE = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_SETS = {"cs": "contains", "cd": "contained", "ov": "overlaps"}
OPERATORS = (*_COMPARE, "like", "ilike", "in", "is", "isdistinct", *_SETS, *text_search.OPERATORS)
_OF_SEVERAL = (*_COMPARE, "like", "ilike")
"""The operators that can compare with any or all values of a list: `like(any).{a*,b*}`."""
_GROUPS = ("and", "or", "not.and", "not.or")
_CONDITION = re.compile(r"(not\.)?([a-z]+)(?:\(([a-z_]*)\))?\.(.*)", re.DOTALL)
_STEP = re.compile(r"(->>?)([^-]+?)(?=->|$)", re.DOTALL)
_IS = ("null", "true", "false", "not_null")
_OF_NONE = {"any": "false", "all": "true"}
"""The result of a comparison with any or all values of an empty list."""
_MOST = 200
"""The most conditions of one query."""
_DEEPEST = 10
_LONGEST = 1000
"""The most values of one list."""
_MOST_SEARCHES = 10
"""The most searches of words in one query: each reads all of a text."""
_LONGEST_PART = 200
"""The most characters of a pattern between two wildcards: Postgres compares so many at each place of a text."""
TEXT = ColumnType("text")


class FilterReader:
    """Reads the filters of one table."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._remaining = _MOST
        self._searches = 0

    def read(self, where: Where) -> list[Expression]:
        """Returns the conditions, all of which must hold. Raises InvalidFilter, which names the wrong ones."""
        conditions: list[Expression] = []
        wrong: list[str] = []
        for name, conditions_of_name in where.items():
            for text in [conditions_of_name] if isinstance(conditions_of_name, str) else conditions_of_name:
                try:
                    if name in _GROUPS:
                        conditions.append(self._read_group(name, text, 1))
                    else:
                        conditions.append(self._read_condition(name, text))
                except InvalidFilter as exc:
                    wrong.append(f"{name}={text}"[:200])
                    last = exc
        if wrong:
            details = {"invalidFilters": wrong, "columns": list(self._table.columns)}
            raise InvalidFilter(last.message, remediation=last.remedy, details=details)
        return conditions

    def _read_group(self, name: str, text: str, depth: int) -> Expression:
        if depth > _DEEPEST:
            raise BadRequest(f"Filters are nested more than {_DEEPEST} deep.")
        if not (text.startswith("(") and text.endswith(")")):
            raise InvalidFilter(f"`{name}` takes conditions in parentheses: `{name}=(a.eq.1,b.gt.2)`.")
        parts = [self._read_member(part, depth) for part in split_outside(text[1:-1])]
        if not parts:
            raise InvalidFilter(f"`{name}` has no condition.")
        group = [name.removeprefix("not."), *parts]
        return ["not", group] if name.startswith("not.") else group

    def _read_member(self, text: str, depth: int) -> Expression:
        for name in _GROUPS:
            if text.startswith(f"{name}("):
                return self._read_group(name, text[len(name) :], depth + 1)
        column, dot, condition = _split_column(text)
        if not dot:
            raise InvalidFilter(f"`{text[:60]}` is not `column.operator.value`.")
        operator = condition.removeprefix("not.").partition(".")[0].partition("(")[0]
        is_of_rows = operator == "is" or operator not in (*OPERATORS, "match", "imatch")
        if is_of_rows and column.partition("->")[0].strip() not in self._table.columns:
            raise InvalidFilter(
                f"`{text[:60]}`: `or` and `and` join conditions on columns of `{self._table.name}`, and not on related "
                f"rows, and it has no column `{column[:63]}`.",
                remediation=f"Filter by related rows beside it, which must hold as well: `{column[:63]}=not.is.null`. "
                "For either the one or the other, declare a view that joins the tables with `left join`, or ask twice.",
            )
        return self._read_condition(column, condition, in_group=True)

    def _read_condition(self, name: str, text: str, *, in_group: bool = False) -> Expression:
        """Reads one condition, such as `eq.x`. Raises BadRequest or InvalidFilter.

        in_group: whether it stands in parentheses. There a value may be quoted, because commas and brackets end it.
        """
        self._remaining -= 1
        if self._remaining < 0:
            raise BadRequest(f"A query has at most {_MOST} conditions.")
        left, kind = self.operand(name)
        match = _CONDITION.fullmatch(text)
        if match is not None and match[2] in ("match", "imatch"):
            # SQLite has no regular expressions, Python's can run for ever, and their syntax is not that of Postgres.
            raise InvalidFilter(
                f"`{name}={text[:60]}`: regular expressions are not available.",
                remediation="Use `like` or `ilike` with `*`, several with `(any)`, or search words with `wfts`.",
            )
        if match is None or match[2] not in OPERATORS:
            raise InvalidFilter(
                f"`{name}={text[:60]}` has no known operator. Use one of {', '.join(OPERATORS)}, also after `not.`."
            )
        negation, operator, mode, value = match.groups()
        _check_mode(operator, mode)
        if operator in text_search.OPERATORS:
            self._searches += 1
            if self._searches > _MOST_SEARCHES:
                raise _too_many_searches()
        if mode in ("any", "all"):
            items = list(_items_of(value, "{", "}"))
            if len(items) > _LONGEST:
                raise BadRequest(f"`{name}`: a list has at most {_LONGEST} values.")
            if operator in ("like", "ilike"):
                # Each pattern is a condition of its own.
                self._remaining -= len(items) - 1
                if self._remaining < 0:
                    raise BadRequest(f"A query has at most {_MOST} conditions, and each pattern of a list is one.")
            parts = [_compare(name, left, kind, operator, item) for item in items]
            condition = join_halves("or" if mode == "any" else "and", parts) if parts else [_OF_NONE[mode]]
        else:
            condition = _compare(name, left, kind, operator, _unquote(value) if in_group else value)
            if condition[0] == "like" and left[0] == "column" and kind.size is None:
                condition = _add_range(condition)
        return ["not", condition] if negation else condition

    def operand(self, name: str) -> tuple[Expression, ColumnType]:
        """Returns the tree of a column, or of a place in a column of JSON (`data->a->>b`), and its type."""
        plain, arrow, _ = name.partition("->")
        column = self._column(plain)
        operand: Expression = ["column", "", column.name]
        if not arrow:
            return operand, column.type
        return read_json_path(operand, column, name[len(plain) :])

    def _column(self, name: str) -> Column:
        column = self._table.columns.get(name.strip().strip('"'))
        if column is None:
            message = f"The table `{self._table.name}` has no column `{name[:63]}`."
            raise InvalidFilter(message, remediation="Name one of its columns; op:schema_describe lists them.")
        return column


def require_few_searches(conditions: Iterable[Expression]) -> None:
    """Raises BadRequest if conditions, of all tables of a query, search more often than a query may."""
    if sum(map(_count_searches, conditions)) > _MOST_SEARCHES:
        raise _too_many_searches()


def _count_searches(tree: Expression) -> int:
    if tree[0] == "search":
        return 1
    return sum(map(_count_searches, tree[1:])) if tree[0] in ("and", "or", "not") else 0


def _too_many_searches() -> BadRequest:
    return BadRequest(
        f"A query searches for words at most {_MOST_SEARCHES} times.",
        remediation="Write one search with several words: `wfts.red or blue -green`.",
    )


def join_halves(kind: str, parts: list[Expression]) -> Expression:
    """Joins conditions with `and` or `or`, in halves where they are many, because databases bound the depth."""
    if len(parts) <= 50:
        return [kind, *parts]
    half = len(parts) // 2
    return [kind, join_halves(kind, parts[:half]), join_halves(kind, parts[half:])]


def _add_range(like: Expression) -> Expression:
    """Adds the range of the texts that begin as a pattern does, which an index can serve."""
    beginning = re.match(r"(?:[^%_\\]|\\.)*", like[2][2], re.DOTALL)
    start = re.sub(r"\\(.)", r"\1", beginning[0] if beginning else "", flags=re.DOTALL)
    if not start:
        return like
    parts: list[Expression] = [[">=", like[1], ["value", "text", start]]]
    following = ord(start[-1]) + 1
    if following < sys.maxunicode:
        # No text has a character of these.
        end = start[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)
        parts.append(["<", like[1], ["value", "text", end]])
    return ["and", *parts, like]


def read_json_path(operand: Expression, column: Column, path: str) -> tuple[Expression, ColumnType]:
    if not column.type.is_json:
        raise InvalidFilter(f"`{column.name}` holds no JSON, so `->` leads nowhere in it.")
    steps = [(part[1], part[2]) for part in _STEP.finditer(path)]
    if "".join(arrow + step for arrow, step in steps) != path or any(arrow == "->>" for arrow, _ in steps[:-1]):
        raise InvalidFilter(f"`{path[:60]}` is not a path in JSON, such as `->a->0->>b`.")
    as_text = steps[-1][0] == "->>"
    tree = ["json", operand, [int(step) if step.isdigit() and len(step) < 6 else step for _, step in steps], as_text]
    return tree, TEXT if as_text else ColumnType("jsonb")


def _check_mode(operator: str, mode: str | None) -> None:
    """Refuses words in parentheses that the operator does not know. They would otherwise be ignored."""
    if mode is None or (mode in ("any", "all") and operator in _OF_SEVERAL):
        return
    if operator not in text_search.OPERATORS:
        raise InvalidFilter(f"`{operator}({mode[:20]})`: {', '.join(_OF_SEVERAL)} take `(any)` and `(all)`.")
    if mode != "english":
        raise InvalidFilter(
            f"`{operator}({mode[:20]})`: texts are searched as English.", remediation=f"Write `{operator}`, as it is."
        )


def _compare(name: str, left: Expression, kind: ColumnType, operator: str, value: str) -> Expression:  # noqa: PLR0911 - one for each kind of operator
    if operator in ("gt", "gte", "lt", "lte") and kind.name in ("json", "jsonb") and not kind.array:
        return [_COMPARE[operator], ["json_number", left], ["number", _read_number(name, operator, value)]]
    if operator in _COMPARE:
        if operator not in ("eq", "neq") and not kind.is_ordered:
            raise InvalidFilter(f"`{name}` is {kind}, which has no order.")
        return [_COMPARE[operator], left, _value(kind, value, name)]
    if operator == "isdistinct":
        return ["isdistinct", left, _value(kind, value, name)]
    if operator in ("like", "ilike"):
        if not kind.is_text:
            raise InvalidFilter(f"`{name}` is {kind}, and `{operator}` compares texts.")
        return [operator, left, _read_pattern(name, kind, value)]
    if operator == "in":
        items = list(_items_of(value, "(", ")"))
        if len(items) > _LONGEST:
            raise BadRequest(f"`{name}`: a list has at most {_LONGEST} values.")
        return ["in", left, [_value(kind, item, name) for item in items]]
    if operator == "is":
        return _compare_is(name, left, kind, value.lower())
    if operator in _SETS:
        return _compare_sets(name, left, kind, _SETS[operator], value)
    if not kind.is_text:
        raise InvalidFilter(f"`{name}` is {kind}, and `{operator}` searches texts.")
    return ["search", left, text_search.read_search(operator, value)]


def _read_number(name: str, operator: str, value: str) -> str:
    """Reads a number that JSON is compared with. Other values of JSON have no order that both databases share."""
    try:
        number: str = ColumnType("numeric").parse(value, name)
    except BadRequest as exc:
        raise InvalidFilter(
            f"`{name}={operator}.{value[:40]}`: JSON is compared by its order with numbers only.",
            remediation="To compare texts, end the path with `->>`, as in `data->>name`.",
        ) from exc
    return number


def _read_pattern(name: str, kind: ColumnType, value: str) -> Expression:
    pattern = _value(kind if kind.size is None else TEXT, value.replace("*", "%"), name)
    if is_unfinished(pattern[2]):
        raise BadRequest(f"`{name}`: a pattern does not end with a single backslash.")
    if max(map(len, re.split(r"[%_]", pattern[2]))) > _LONGEST_PART:
        raise BadRequest(
            f"`{name}`: a pattern has at most {_LONGEST_PART} characters between two wildcards.",
            remediation="Compare whole values with `eq`, or search words with `wfts`.",
        )
    return pattern


def _compare_is(name: str, left: Expression, kind: ColumnType, value: str) -> Expression:
    if value not in _IS or (value in ("true", "false") and kind.name != "boolean"):
        raise InvalidFilter(f"`{name}=is.{value[:20]}`: `is` takes null, not_null, and of a boolean true or false.")
    return ["not", ["is", left, "null"]] if value == "not_null" else ["is", left, value]


def _compare_sets(name: str, left: Expression, kind: ColumnType, operator: str, value: str) -> Expression:
    if not kind.is_json or (operator == "overlaps" and not kind.array):
        raise InvalidFilter(f"`{name}` is {kind}; cs and cd compare arrays and JSON, ov arrays.")
    return [operator, left, _value(kind, value, name)]


def _value(kind: ColumnType, text: str, name: str) -> Expression:
    if kind.name in ("json", "jsonb") and not kind.array:
        value = kind.clean(kind.parse(text, name), name)
    else:
        value = kind.parse(text, name)
    return ["value", str(kind) if not kind.serial else kind.name, value]


def _items_of(text: str, opening: str, closing: str) -> Iterator[str]:
    if not (text.startswith(opening) and text.endswith(closing)):
        raise InvalidFilter(f"A list is written in `{opening}{closing}`, and not as `{text[:40]}`.")
    for item in split_outside(text[1:-1]):
        yield _unquote(item)


def _unquote(text: str) -> str:
    is_quoted = len(text) >= 2 and text[0] == '"' and text[-1] == '"'
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if is_quoted else text


def split_outside(text: str) -> list[str]:
    """Splits at commas that stand outside quotes and brackets.

    A quoted part ends at a quote before a comma, a closing bracket or the end, because clients do not escape quotes
    within it.
    """
    parts: list[str] = []
    depth, start, index, in_quotes = 0, 0, 0, False
    while index < len(text):
        character = text[index]
        if character == "\\":
            index += 1
        elif in_quotes:
            in_quotes = not (character == '"' and (index + 1 == len(text) or text[index + 1] in ",)}"))
        elif character == '"' and (index == start or text[index - 1] in ",(.{"):
            in_quotes = True
        elif character in "({":
            depth += 1
        elif character in ")}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
        index += 1
    if in_quotes or depth:
        raise InvalidFilter("A quote or a bracket is not closed.")
    return [*parts, text[start:]] if text else []


def _split_column(text: str) -> tuple[str, str, str]:
    if text.startswith('"'):
        name, quote, rest = text[1:].partition('"')
        return name, quote and rest[:1], rest[1:]
    return text.partition(".")


def as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
