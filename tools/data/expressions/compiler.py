"""Compiles SQL expressions of policies, checks, generated columns and views into trees that work on both databases.

Nothing of the text reaches a database: sqlglot parses it, and any node that the compiler does not know is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from baobab.runtime.late_import import LateImport
from baobab.tools.data.errors import InvalidExpression, MismatchedTypes, UnsafeExpression
from baobab.tools.data.expressions.caller_expressions import (
    API_ROLE,
    BOOLEAN_CLAIMS,
    compare_role,
    find_caller,
    find_claim,
    require_role_name,
)
from baobab.tools.data.expressions.expressions import FUNCTIONS, is_unfinished
from baobab.tools.data.expressions.subqueries import SubqueryCompiler, is_own_values
from baobab.tools.data.expressions.trees import is_exact, read_literal
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.values.array_text import parse_array
from baobab.tools.data.values.column_types import ColumnType, UnknownType, parse_type

LONGEST = 4000
_LARGEST = 40_000
"""The most characters of an expression's tree."""
_DEEPEST = 12
"""SQLite's parser allows little more when expressions are nested."""
_MOST_PRODUCTS = 4
"""The most multiplications of one expression, because each may double the digits of a number."""
_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}
"""The units of intervals, in seconds. A month has no length of its own."""
_LONGEST_SHIFT = 100 * 365 * 86400
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_BOOLEAN = "boolean"

TypedExpression = tuple[Expression, str | None]
"""A tree and the family of its values. The family is None for a literal, which takes that of the value it is
compared with.
"""


@dataclass
class ExpressionScope:
    """The tables that a name may refer to: the policy's own under its name and the empty alias, or those of a view;
    then those of subqueries.
    """

    tables: dict[str, TableInfo] = field(default_factory=dict)
    outer: "ExpressionScope | None" = None

    def find_type(self, alias: str, name: str) -> ColumnType:
        scope: ExpressionScope | None = self
        while scope is not None:
            if alias in scope.tables:
                return scope.tables[alias].columns[name].type
            scope = scope.outer
        raise KeyError(alias)


def _import_sqlglot() -> Any:
    import sqlglot  # noqa: PLC0415 - a start must not pay for it

    return sqlglot


_SQLGLOT = LateImport(_import_sqlglot)


async def load_parser() -> Any:
    """Imports sqlglot, which takes a third of a second, so only calls that write policies pay for it."""
    return await _SQLGLOT.get()


def compile_condition(parser: Any, text: str, catalogue: Catalogue, table: TableInfo) -> Expression:
    """Compiles a condition. Raises UnsafeExpression, MismatchedTypes or InvalidExpression, which say what is wrong
    where.
    """
    tree, family = compile_value(parser, text, catalogue, table)
    if family not in (_BOOLEAN, None) or (family is None and tree[0] == "literal"):
        raise InvalidExpression("The expression is not a condition: it is neither true nor false.")
    return tree


def compile_value(parser: Any, text: str, catalogue: Catalogue, table: TableInfo) -> TypedExpression:
    """Compiles an expression of any type, like `compile_condition`."""
    if len(text) > LONGEST:
        raise InvalidExpression(f"An expression has at most {LONGEST} characters.")
    try:
        node = parser.parse_one(text, into=parser.exp.Condition, dialect="postgres")
    except (parser.errors.SqlglotError, RecursionError) as exc:
        raise InvalidExpression("This is not one expression of SQL.") from exc
    compiler = ExpressionCompiler(catalogue, may_find_own_rows=True)
    typed_expression = compiler.compile(node, ExpressionScope({"": table}), 0)
    require_small(typed_expression[0])
    return typed_expression


def require_small(tree: Any) -> None:
    """Raises InvalidExpression for a tree that is large although its text is short: `between` repeats its value."""
    if len(json.dumps(tree)) > _LARGEST:
        raise InvalidExpression("The expression is too large: write fewer conditions within each other.")


class ExpressionCompiler:
    def __init__(self, catalogue: Catalogue, *, may_find_own_rows: bool = False) -> None:
        """may_find_own_rows: whether an expression may look up rows of the caller that policies hide."""
        self.may_find_own_rows = may_find_own_rows
        self._catalogue = catalogue
        self._subqueries = SubqueryCompiler(self, catalogue)
        self._products = 0
        self._is_in_json = False

    def compile(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        if depth > _DEEPEST:
            raise InvalidExpression(f"The expression is nested more than {_DEEPEST} deep.")
        kind = type(node).__name__
        if kind in _COMPARISONS:
            items = _find_quantified(node)
            if items is not None:
                return self._compare_any(node, items, scope, depth + 1)
            return self._compare([_COMPARISONS[kind]], node, scope, depth + 1)
        method = _NODES.get(kind)
        if method is None:
            raise _refuse(node)
        result: TypedExpression = getattr(self, method)(node, scope, depth + 1)
        return result

    def condition(self, node: Any, scope: ExpressionScope, depth: int) -> Expression:
        tree, family = self.compile(node, scope, depth)
        if family != _BOOLEAN:
            raise MismatchedTypes("`and`, `or` and `not` join conditions, and one of these is a value.")
        return tree

    def _compare(self, head: list[Any], node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        left, right = self._match(self.compile(node.this, scope, depth), self.compile(node.expression, scope, depth))
        return compare_role(head[0], left, right) or [*head, left, right], _BOOLEAN

    def _compare_any(self, node: Any, items: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        """Compiles `value = any(array)`, and `value <> all(array)`, which is the opposite."""
        if type(node).__name__ != ("EQ" if type(node.expression).__name__ == "Any" else "NEQ"):
            raise InvalidExpression("Arrays are compared by `= any(array)` and `<> all(array)`.")
        tree = self._find_among(self.compile(node.this, scope, depth), items, scope, depth)
        return (tree if type(node).__name__ == "EQ" else ["not", tree]), _BOOLEAN

    def _find_among(self, left: TypedExpression, items: Any, scope: ExpressionScope, depth: int) -> Expression:
        select = _find_select(items)
        if select is not None:
            return self._find_in_rows(left, *self._rows(select, scope, depth, with_column=True))
        if is_own_values(items):
            return self._find_in_rows(left, *self._subqueries.compile_own_values(items, ExpressionScope({}, scope)))
        cast = items.args["to"].sql(dialect="postgres").lower() if type(items).__name__ == "Cast" else ""
        array = items.this if cast.endswith("[]") else items
        if type(array).__name__ == "Array":
            items_given = [self.compile(item, scope, depth) for item in array.expressions]
        elif type(array).__name__ == "Literal" and array.is_string:
            texts = parse_array(array.this, "the array")
            items_given = [(["literal", text, True], None) for text in texts if text is not None]
        else:
            return self._find_in_array(left, self.compile(items, scope, depth))
        if cast and left[1] is None:
            left = (left[0], parse_type(cast.removesuffix("[]")).family())
        pairs = [self._match(left, item) for item in items_given]
        return ["in", pairs[0][0], [item for _, item in pairs]] if pairs else ["false"]

    def _find_in_array(self, left: TypedExpression, array: TypedExpression) -> Expression:
        try:
            kind = parse_type(array[1] or "")
        except UnknownType:
            kind = parse_type("text")
        if not kind.array:
            raise MismatchedTypes(f"`any` takes an array, and not {array[1] or 'a value of no type'}.")
        if kind.name in ("numeric", "json", "jsonb", "bytea", "real", "double precision", "boolean"):
            raise MismatchedTypes(f"`any` takes no array of {kind.name}.")
        value, _ = self._match(left, (["value", str(kind.item), None], kind.item.family()))
        return ["any", value, array[0]]

    def _match(self, left: TypedExpression, right: TypedExpression) -> tuple[Expression, Expression]:
        """Gives two values the same type: a literal takes the type of the other value."""
        if left[0] == API_ROLE and right[1] is None:
            require_role_name(read_literal(right[0], "text"))
        if left[1] is None and right[1] is None:
            return read_literal(left[0], "text"), read_literal(right[0], "text")
        if left[1] is None:
            return read_literal(left[0], right[1] or "text"), right[0]
        if right[1] is None:
            return left[0], read_literal(right[0], left[1])
        if left[1] == right[1]:
            return left[0], right[0]
        # The id of a user is a UUID, even if the column stores it as a text.
        if left[0] == ["user"] and right[1] == "uuid":
            return ["user_uuid"], right[0]
        if right[0] == ["user"] and left[1] == "uuid":
            return left[0], ["user_uuid"]
        raise MismatchedTypes(f"The expression compares {left[1]} with {right[1]}.")

    def _join_conditions(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        name = type(node).__name__.lower()
        return [name, *(self.condition(each, scope, depth) for each in _list_chain(node))], _BOOLEAN

    def _not(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        return ["not", self.condition(node.this, scope, depth)], _BOOLEAN

    def _paren(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        while type(node).__name__ == "Paren":
            node = node.this
        # Parentheses do not count as depth.
        return self.compile(node, scope, depth - 1)

    def _boolean(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        del scope, depth
        return ["true" if node.this else "false"], _BOOLEAN

    def _literal(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        del scope, depth
        return ["literal", str(node.this), bool(node.is_string)], None

    def _neg(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        tree, family = self.compile(node.this, scope, depth)
        if tree[0] == "literal" and not tree[2]:
            return ["literal", f"-{tree[1]}", False], family
        return self._calculate("-", (["literal", "0", False], None), (tree, family), scope)

    def _arithmetic(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        operator = {"Add": "+", "Sub": "-", "Mul": "*"}[type(node).__name__]
        if type(node.expression).__name__ == "Interval":
            return self._shift(operator, node, scope, depth)
        left, right = self.compile(node.this, scope, depth), self.compile(node.expression, scope, depth)
        return self._calculate(operator, left, right, scope)

    def _shift(self, operator: str, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        """Compiles `now() - interval '15 minutes'`."""
        tree, _ = self.compile(node.this, scope, depth)
        interval = node.expression
        unit = str(interval.args.get("unit") or "").upper().removesuffix("S")
        amount = interval.this.name if type(interval.this).__name__ == "Literal" else ""
        if tree[0] != "now" or unit not in _UNITS or not amount.isdecimal() or len(amount) > 6:
            raise InvalidExpression(
                "An interval is added to `now()` or subtracted from it, in seconds, minutes, hours, days or weeks.",
                remediation="Write `created_at > now() - interval '1 day'`, not `created_at + interval ...`.",
            )
        seconds = int(amount) * _UNITS[unit] * (1 if operator == "+" else -1)
        seconds += tree[1] if len(tree) > 1 else 0
        if abs(seconds) > _LONGEST_SHIFT:
            raise InvalidExpression("An interval has at most 100 years.")
        return ["now", seconds], "timestamptz"

    def _case(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        subject = None if node.this is None else self.compile(node.this, scope, depth)
        conditions: list[Expression] = []
        for each in node.args["ifs"]:
            if subject is None:
                conditions.append(self.condition(each.this, scope, depth))
            else:
                conditions.append(["=", *self._match(subject, self.compile(each.this, scope, depth))])
        default = node.args.get("default")
        nodes = [*(each.args["true"] for each in node.args["ifs"]), *([] if default is None else [default])]
        values = [self.compile(each, scope, depth) for each in nodes if type(each).__name__ != "Null"]
        first_typed = next((value for value in values if value[1] is not None), None)
        if first_typed is None:
            first_typed = (["value", "text", ""], "text")
        in_order = iter([self._match(first_typed, value)[1] for value in values])
        trees = [None if type(each).__name__ == "Null" else next(in_order) for each in nodes]
        pairs = [[condition, tree] for condition, tree in zip(conditions, trees, strict=False)]
        result: Expression = ["case", pairs, None if default is None else trees[-1]]
        return (["exact_choice", result] if first_typed[1] == "number" else result), first_typed[1]

    def _calculate(
        self, operator: str, left: TypedExpression, right: TypedExpression, scope: ExpressionScope
    ) -> TypedExpression:
        """Compiles a sum or product, which is exact, as are its numbers."""
        self._products += operator == "*"
        if self._products > _MOST_PRODUCTS:
            raise InvalidExpression(f"An expression has at most {_MOST_PRODUCTS} multiplications.")
        parts = [read_literal(tree, "number") for tree, _ in (left, right)]
        for tree, family in zip(parts, (left[1], right[1]), strict=True):
            if family not in ("number", None):
                raise MismatchedTypes(f"`{operator}` takes numbers, and not {family}.")
            if not is_exact(tree, scope.find_type):
                raise MismatchedTypes(f"`{operator}` takes integers and numerics, and no real or double precision.")
        return ["exact", operator, *parts], "number"

    def _concat(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        parts = [self.compile(each, scope, depth) for each in _list_chain(node)]
        for _, family in parts:
            if family not in ("text", None):
                raise MismatchedTypes(f"`||` joins texts, and not {family}; cast it: `number::text`.")
        return ["concat", *(read_literal(tree, "text") for tree, _ in parts)], "text"

    def _column(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        del depth
        if node.args.get("db") or node.args.get("catalog"):
            raise UnsafeExpression(f"`{node.sql()[:60]}`: columns are named with their table at most.")
        name, alias = node.name, node.table
        at: ExpressionScope | None = scope
        while at is not None:
            matches = [
                (table_alias, table.columns[name])
                for table_alias, table in at.tables.items()
                if (alias in ("", table_alias) or (table_alias == "" and alias == table.name)) and name in table.columns
            ]
            if len(matches) > 1:
                raise InvalidExpression(f"`{name}` is a column of several tables: write `{matches[0][0]}.{name}`.")
            if matches:
                return ["column", matches[0][0], name], matches[0][1].type.family()
            at = at.outer
        raise InvalidExpression(f"There is no column `{f'{alias}.' if alias else ''}{name}` here.")

    def _is(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        left, family = self.compile(node.this, scope, depth)
        value = type(node.expression).__name__
        word = "null" if value == "Null" else str(node.expression.this).lower() if value == "Boolean" else ""
        if not word or family is None or (word != "null" and family != _BOOLEAN):
            raise InvalidExpression("`is` asks for null, and of a boolean for true or false.")
        tree = ["is", left, word]
        return (["not", tree] if node.args.get("negate") else tree), _BOOLEAN

    def _in(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        left = self.compile(node.this, scope, depth)
        query = node.args.get("query")
        if query is not None or (len(node.expressions) == 1 and is_own_values(node.expressions[0])):
            return self._find_among(left, node.expressions[0] if query is None else query, scope, depth), _BOOLEAN
        if not node.expressions:
            raise _refuse(node)
        pairs = [self._match(left, self.compile(item, scope, depth)) for item in node.expressions]
        return ["in", pairs[0][0], [item for _, item in pairs]], _BOOLEAN

    def _find_in_rows(self, left: TypedExpression, rows: dict[str, Any], family: str | None) -> Expression:
        tree, column = self._match(left, (rows["column"], family))
        return ["in_rows", tree, {**rows, "column": column}]

    def _between(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        value = self.compile(node.this, scope, depth)
        low = self._match(value, self.compile(node.args["low"], scope, depth))
        high = self._match(value, self.compile(node.args["high"], scope, depth))
        return ["and", [">=", *low], ["<=", *high]], _BOOLEAN

    def _like(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        name = type(node).__name__.lower()
        left = self.compile(node.this, scope, depth)
        right = self.compile(node.expression, scope, depth)
        if {left[1], right[1]} - {"text", None}:
            raise MismatchedTypes("`like` compares texts.")
        value, pattern = self._match(left, right)
        if pattern[0] == "value" and is_unfinished(pattern[2]):
            raise InvalidExpression("A pattern does not end with a single backslash.")
        return [name, value, pattern], _BOOLEAN

    def _distinct(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        tree, family = self._compare(["isdistinct"], node, scope, depth)
        return (["not", tree] if type(node).__name__ == "NullSafeEQ" else tree), family

    def _cast(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        tree, family = self.compile(node.this, scope, depth)
        name = node.args["to"].sql(dialect="postgres").lower()
        try:
            kind = parse_type(name)
        except UnknownType as exc:
            raise InvalidExpression(f"A value cannot be cast to `{name[:40]}`.") from exc
        if tree[0] == "literal":
            return read_literal(tree, kind.family()), kind.family()
        if kind.family() == family:
            return tree, family
        if tree == ["user"] and kind.name == "uuid":
            return ["user_uuid"], "uuid"
        if tree[0] == "claim" and tree[1] in BOOLEAN_CLAIMS and kind.family() == _BOOLEAN:
            return ["=", tree, ["value", "text", "true"]], _BOOLEAN
        if not kind.is_text or family in ("bytea", "vector", _BOOLEAN):
            raise MismatchedTypes(f"{family} cannot be cast to {kind}; values can be cast to text.")
        return ["cast", tree, "text"], "text"

    def _user(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        del node, scope, depth
        return ["user"], "text"

    def _now(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        del node, scope, depth
        return ["now"], "timestamptz"

    def _call_by_name(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        """Compiles a function that sqlglot does not know, or `auth.uid()`."""
        caller = find_caller(node.sql().lower().partition("(")[0])
        if caller is None or (caller == ["jwt"] and not self._is_in_json):
            raise _refuse(node)
        return caller, "jsonb" if caller == ["jwt"] else "text"

    def _call(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        name = type(node).__name__.lower()
        nodes = [node.this, *node.expressions] if name == "coalesce" else [node.this]
        arguments = [self.compile(each, scope, depth) for each in nodes]
        if name == "coalesce":
            first_typed = next((argument for argument in arguments if argument[1] is not None), arguments[0])
            tree = ["call", name, *(self._match(first_typed, argument)[1] for argument in arguments)]
            return (["exact_choice", tree] if first_typed[1] == "number" else tree), first_typed[1] or "text"
        expected_family = "number" if name == "abs" else "text"
        tree, family = arguments[0]
        if family is None:
            tree = read_literal(tree, expected_family)
        elif family != expected_family:
            raise MismatchedTypes(f"`{name}` takes {expected_family}, and not {family}.")
        return ["call", name, tree], "number" if name in ("length", "abs") else "text"

    def _exists(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        rows, _ = self._rows(node.this, scope, depth, with_column=False)
        return ["exists", rows], _BOOLEAN

    def _subquery(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        """Compiles a lookup of one value, or `(select current_user_id())`, which some write so that Postgres evaluates
        it once.
        """
        select = node.this
        if type(select).__name__ != "Select" or len(select.expressions) != 1:
            raise _refuse(node)
        if not select.args.get("from_"):
            return self.compile(select.expressions[0], scope, depth)
        if type(select.expressions[0]).__name__ == "Count" and type(select.expressions[0].this).__name__ == "Star":
            rows, _ = self._rows(select, scope, depth, with_column=False)
            return ["count_rows", rows], "number"
        rows, family = self._rows(select, scope, depth, with_column=True)
        if rows["column"][0] != "column":
            raise InvalidExpression("A lookup selects a column as it is, or `count(*)`.")
        kind = self._find_kind(rows, scope)
        return ["lookup", rows, str(kind)], family

    def _find_kind(self, rows: dict[str, Any], scope: ExpressionScope) -> ColumnType:
        """Returns the type of the column that a subquery selects."""
        _, alias, name = rows["column"]
        for source in (rows, *rows["joins"]):
            if source["alias"] == alias:
                return replace(self._catalogue.tables[source["table"]].columns[name].type, serial=False)
        return replace(scope.find_type(alias, name), serial=False)

    def _json(self, node: Any, scope: ExpressionScope, depth: int) -> TypedExpression:
        self._is_in_json = True
        tree, family = self.compile(node.this, scope, depth)
        self._is_in_json = False
        if family not in ("json", "jsonb"):
            raise MismatchedTypes("`->>` leads into JSON.")
        steps: list[str | int] = []
        for step in node.expression.expressions[1:]:
            if type(step).__name__ not in ("JSONPathKey", "JSONPathSubscript") or not isinstance(step.this, str | int):
                raise _refuse(node)
            steps.append(step.this)
        as_text = type(node).__name__ == "JSONExtractScalar"
        if tree[0] == "jwt" or (tree[0] == "json" and tree[1] == ["jwt"]):
            return find_claim([*(tree[2] if tree[0] == "json" else ()), *steps], as_text=as_text), "text"
        return ["json", tree, steps, as_text], "text" if as_text else "jsonb"

    def _rows(
        self, select: Any, scope: ExpressionScope, depth: int, *, with_column: bool
    ) -> tuple[dict[str, Any], str | None]:
        return self._subqueries.compile(select, ExpressionScope({}, scope), depth, with_column=with_column)


def _find_quantified(node: Any) -> Any | None:
    """Returns the array of `any(array)` or `all(array)` on the right of a comparison; None if there is none."""
    right = node.expression
    if type(right).__name__ == "Any":
        return right.this.this if type(right.this).__name__ == "Paren" else right.this
    if type(right).__name__ == "Anonymous" and right.name.lower() == "all" and len(right.expressions) == 1:
        return right.expressions[0]
    return None


def _find_select(node: Any) -> Any | None:
    """Returns the query of `(select ...)` or `array(select ...)`; None for anything else."""
    if type(node).__name__ == "Array" and [type(each).__name__ for each in node.expressions] == ["Select"]:
        return node.expressions[0]
    node = node.this if type(node).__name__ == "Subquery" else node
    return node if type(node).__name__ == "Select" else None


def _list_chain(node: Any) -> list[Any]:
    """Returns the parts of `a and b and c`, which is parsed as `(a and b) and c`."""
    parts: list[Any] = []
    kind = type(node)
    while type(node) is kind:
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]


def _refuse(node: Any) -> UnsafeExpression:
    return UnsafeExpression(f"An expression may not use `{node.sql(dialect='postgres', comments=False)[:80]}`.")


_NODES: Mapping[str, str] = {
    # The kinds of nodes of sqlglot, and the method that compiles each.
    "And": "_join_conditions",
    "Or": "_join_conditions",
    "Not": "_not",
    "Paren": "_paren",
    "Boolean": "_boolean",
    "Literal": "_literal",
    "Neg": "_neg",
    "Add": "_arithmetic",
    "Sub": "_arithmetic",
    "Mul": "_arithmetic",
    "DPipe": "_concat",
    "Column": "_column",
    "Is": "_is",
    "In": "_in",
    "Between": "_between",
    "Like": "_like",
    "ILike": "_like",
    "NullSafeNEQ": "_distinct",
    "NullSafeEQ": "_distinct",
    "Cast": "_cast",
    "CurrentUserId": "_user",
    "CurrentTimestamp": "_now",
    "Anonymous": "_call_by_name",
    "Dot": "_call_by_name",
    "Exists": "_exists",
    "Subquery": "_subquery",
    "Case": "_case",
    "JSONExtract": "_json",
    "JSONExtractScalar": "_json",
    **{name.capitalize(): "_call" for name in FUNCTIONS},
}
