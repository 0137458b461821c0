"""Conditions on rows, as trees, and their SQL for both databases. Filters of requests and policies are the same trees.

A tree is JSON: a list of a name and its parts.

    ["and", x, ...] ["or", x, ...] ["not", x] ["true"] ["false"]
    ["=", a, b], and so <> < <= > >= isdistinct
    ["is", a, "null" | "true" | "false"]
    ["in", a, [b, ...]]
    ["like", a, b] ["ilike", a, b]
    ["contains", a, b] ["contained", a, b] ["overlaps", a, b]
    ["search", a, tree of text_search]
    ["any", a, array]
    ["exists", rows] ["in_rows", a, rows] ["lookup", rows, type of its column] ["count_rows", rows]
    ["column", alias, name] ["value", type, canonical] ["number", text] ["user"] ["user_uuid"] ["role"]
    ["claim", "email" | "email_verified" | "is_anonymous"] ["now"] ["now", seconds from now]
    ["case", [[condition, a], ...], b or null]
    ["concat", a, b, ...] ["exact", "+" | "-" | "*", a, b] ["exact_choice", ["call", "coalesce", a, ...]]
    ["generated", a, type] ["fits", a, type]
    ["json", a, [step, ...], whether as text] ["json_number", a] ["cast", a, type] ["call", name, a, ...]
    ["aggregate", "count" | "sum" | "avg" | "min" | "max", a or null, type of a]
    ["distance", "cosine" | "l2" | "inner", a, b]
    ["behind", table, policy, a] ["among", column, [value of the driver, ...]] ["written", function of the scope]

The alias of a column is empty for the table that the condition is about. The rows of a subquery are an object
(tools/data/expressions/subqueries.py).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.storage.data.english import MOST_SEARCHED, SEPARATORS
from baobab.storage.data.store import DataStore
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import InvalidExpression
from baobab.tools.data.expressions.own_rows import name_own_rows
from baobab.tools.data.expressions.subqueries import advise_against_circle, show_own_rows
from baobab.tools.data.expressions.text_search import write_tsquery
from baobab.tools.data.expressions.trees import is_leakproof
from baobab.tools.data.schema.catalogue import Catalogue, Command, Expression, TableInfo
from baobab.tools.data.values.column_types import ColumnType, parse_type
from baobab.tools.data.values.temporal_values import shift_moment

TRUE: Expression = ["true"]
FALSE: Expression = ["false"]
COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
FUNCTIONS = {"lower": 1, "upper": 1, "length": 1, "coalesce": None, "abs": 1}
"""The functions of SQL that expressions may call, with the number of their arguments."""
_DEEPEST = 4
"""How many tables policies may lead to, one within another."""
_ROW_NUMBERS = ("rowid", "_rowid_", "oid")
"""The names by which SQLite knows the number of a row, where no column has taken them."""
_UNFINISHED = r"^([^\\]|\\.)*\\$"
"""A regular expression of Postgres that matches patterns with an unfinished escape."""

FENCES = {"sqlite": "LIMIT -1", "postgresql": "OFFSET 0"}
"""What makes a database evaluate the conditions of a subquery before those of the query around it."""

Scope = Mapping[str, str]
"""The names that the SQL around a condition gives to the tables that it may name."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Stands for a moment that many seconds after the moment of a statement, where that is not known yet."""

    seconds: int


def is_unfinished(pattern: str) -> bool:
    """Returns whether a pattern of `like` ends with a backslash that escapes nothing."""
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1


def quote(name: str) -> str:
    return f'"{name}"'


def both(*conditions: Expression) -> Expression:
    """Joins conditions with AND, without those that are always true."""
    parts = [condition for condition in conditions if condition != TRUE]
    if FALSE in parts:
        return FALSE
    return parts[0] if len(parts) == 1 else ["and", *parts] if parts else TRUE


def allowed_rows(table: TableInfo, command: Command, actor: Actor) -> Expression:
    """Returns the condition for the rows of a table that an actor may reach with a command."""
    return _combine(table, command, actor, lambda policy: policy.using_tree)


def allowed_after(table: TableInfo, command: Command, actor: Actor) -> Expression:
    """Returns the condition that a row must meet after the actor has inserted or changed it."""
    return _combine(table, command, actor, lambda policy: policy.check_tree or policy.using_tree)


def opened_rows(table: TableInfo, command: Command, actor: Actor) -> Expression:
    """Returns the condition for the rows that a command may touch. An inserted row did not exist before, so only the
    checks decide.
    """
    return (allowed_after if command == "INSERT" else allowed_rows)(table, command, actor)


def _combine(table: TableInfo, command: Command, actor: Actor, tree: Callable[[Any], Expression | None]) -> Expression:
    if actor.role == "service" or not table.secured:
        return TRUE
    permissive: list[Expression] = []
    restrictive: list[Expression] = []
    for policy in table.policies.values():
        if policy.command in (command, "ALL") and policy.role in (None, actor.role):
            (restrictive if policy.restrictive else permissive).append(tree(policy) or FALSE)
    if not permissive:
        return FALSE
    return both(permissive[0] if len(permissive) == 1 else ["or", *permissive], *restrictive)


class SqlWriter:
    """Writes conditions as SQL of one database. `values` has the values of the placeholders, in their order."""

    def __init__(self, store: DataStore, app_id: str, catalogue: Catalogue, actor: Actor, now: str) -> None:
        self.dialect = store.dialect
        self.values: list[Any] = []
        self._store = store
        self._app_id = app_id
        self._catalogue = catalogue
        self._actor = actor
        self._now = now
        self._aliases = 0
        self._depth = 0
        self._path: list[str] = []
        """The tables whose policies are being written, one within another."""
        self.has_own_rows_by_function = False
        """Whether Postgres's own row-level security applies to the statement, so that the caller's own rows are looked
        up by a function that is exempt from it.
        """

    def name_table(self, table: str) -> str:
        return self._store.name_table(self._app_id, table)

    def find_table(self, name: str) -> TableInfo:
        return self._catalogue.table(name)

    @property
    def _fold(self) -> str:
        """The name of the function that turns all letters into small ones, as Unicode defines them."""
        return "fold" if self.dialect == "sqlite" else self.name_table("_fold")

    def write(self, tree: Expression, scope: Scope) -> str:
        kind = tree[0]
        if kind in COMPARISONS:
            return f"({self._write_compared(tree[1], scope)} {kind} {self._write_compared(tree[2], scope)})"
        sql: str = self.writers[kind](self, tree, scope)
        return sql

    def value(self, value: Any, placeholder: str = "?") -> str:
        self.values.append(value)
        return placeholder

    def _write_compared(self, tree: Expression, scope: Scope) -> str:
        """Writes a value that is compared. SQLite stores exact numbers as texts, so it needs a function to compare
        them.
        """
        sql = self.write(tree, scope)
        is_exact = tree[0] in ("exact", "exact_choice") or (
            tree[0] in ("generated", "lookup") and parse_type(tree[2]).is_exact
        )
        return f"exact_number({sql})" if is_exact and self.dialect == "sqlite" else sql

    def _write_joined(self, tree: Expression, scope: Scope) -> str:
        parts = [self.write(part, scope) for part in tree[1:]]
        return f"({f' {tree[0].upper()} '.join(parts)})"

    def _write_not(self, tree: Expression, scope: Scope) -> str:
        return f"(NOT {self.write(tree[1], scope)})"

    def _write_constant(self, tree: Expression, scope: Scope) -> str:
        del scope
        return "TRUE" if tree[0] == "true" else "FALSE"

    def _write_distinct(self, tree: Expression, scope: Scope) -> str:
        operator = "IS NOT" if self.dialect == "sqlite" else "IS DISTINCT FROM"
        return f"({self._write_compared(tree[1], scope)} {operator} {self._write_compared(tree[2], scope)})"

    def _write_is(self, tree: Expression, scope: Scope) -> str:
        left = self.write(tree[1], scope)
        if tree[2] == "null" and self.dialect == "sqlite":
            # SQLite 3.40 evaluates `IS NULL` wrongly for columns of a strict table behind `RETURNING`.
            return f"({left} IS {self.value(None)})"
        return f"({left} IS {tree[2].upper()})"

    def _write_in(self, tree: Expression, scope: Scope) -> str:
        left = self._write_compared(tree[1], scope)
        items = ", ".join(self._write_compared(item, scope) for item in tree[2])
        return f"({left} IN ( {items}))" if items else "FALSE"

    def _write_like(self, tree: Expression, scope: Scope) -> str:
        def write(part: Expression) -> str:
            text = self.write(part, scope)
            return text if tree[0] == "like" else f"{self._fold}({text})"

        _, value, pattern = tree
        if self.dialect == "sqlite" or pattern[0] == "value":
            return f"({write(value)} LIKE {write(pattern)} ESCAPE '\\')"
        # A pattern from a row may end within an escape. Postgres raises an error; here it matches nothing.
        return (
            f"(CASE WHEN {write(pattern)} ~ '{_UNFINISHED}' THEN {write(value)} <> {write(value)}"
            f" ELSE {write(value)} LIKE {write(pattern)} ESCAPE '\\' END)"
        )

    def _write_contains(self, tree: Expression, scope: Scope) -> str:
        left, right = self.write(tree[1], scope), self.write(tree[2], scope)
        if self.dialect == "sqlite":
            return f"json_{tree[0]}({left}, {right})"
        operator = {"contains": "@>", "contained": "<@", "overlaps": "&&"}[tree[0]]
        return f"({left} {operator} {right})"

    def _write_search(self, tree: Expression, scope: Scope) -> str:
        left = self.write(tree[1], scope)
        if self.dialect == "sqlite":
            return f"english_search({left}, {self.value(json.dumps(tree[2]))})"
        query = self.value(write_tsquery(tree[2]), "?::text")
        return f"({self.write_words(left)} @@ to_tsquery('english', {query}))"

    def write_words(self, text: str) -> str:
        """Writes the words of a text for a search in Postgres. An index has the very same expression.

        text: the SQL of the text.
        """
        # Postgres's own parser splits words by its locale, and fails for texts that are too long for it.
        words = f"regexp_replace({self._fold}(left({text}, {MOST_SEARCHED})), '[{SEPARATORS}]+', ' ', 'g')"
        return f"to_tsvector('english', {words})"

    def _write_exists(self, tree: Expression, scope: Scope) -> str:
        return f"EXISTS ({self._write_rows(tree[1], scope)})"

    def _write_in_rows(self, tree: Expression, scope: Scope) -> str:
        left = self.write(tree[1], scope)
        return f"({left} IN ( {self._write_rows(tree[2], scope)}))"

    def name_alias(self) -> str:
        """Returns an alias for a table of a subquery that is unique in the statement."""
        self._aliases += 1
        return f"_q{self._aliases}"

    def _write_lookup(self, tree: Expression, scope: Scope) -> str:
        """Writes a lookup of one value: null if there is no row, or more than one."""
        select = self._write_rows(tree[1], scope)
        if self.dialect == "sqlite":
            return f"(SELECT iif(count(*) = 1, max(_v), NULL) FROM ({select}) AS {self.name_alias()})"
        return f"(SELECT CASE WHEN count(*) = 1 THEN (array_agg(_v))[1] END FROM ({select}) AS {self.name_alias()})"

    def _write_count(self, tree: Expression, scope: Scope) -> str:
        return f"(SELECT count(*) FROM ({self._write_rows(tree[1], scope)}) AS {self.name_alias()})"

    def _write_rows(self, rows: Mapping[str, Any], scope: Scope) -> str:
        """Writes a subquery, which reaches only the rows that the policies of its tables allow to the actor, or the
        actor's own rows.
        """
        if self._depth >= _DEEPEST:
            raise InvalidExpression(
                f"The policies of these tables lead from table to table more than {_DEEPEST} deep.",
                remediation="Give the table that a policy queries a policy that queries no other table.",
            )
        joins = rows.get("joins", ())
        inner = {**scope, **{source["alias"]: self.name_alias() for source in (rows, *joins)}}
        alias = inner[rows["alias"]]
        self._depth += 1
        column = self.write(rows["column"], inner) if rows["column"] else "1"
        is_leaky = not all(map(is_leakproof, [each for each in (rows["where"], *(j["on"] for j in joins)) if each]))
        source = f"{self._name_source(rows)} AS {alias}"
        text = f"SELECT {column} AS _v FROM {self._write_reached(rows, alias, FENCES) if is_leaky else source}"
        for join in joins:
            name = inner[join["alias"]]
            reached_rows = self._write_reached(join, name, FENCES if is_leaky else {})
            text += f" {join['join']} {reached_rows} ON {self.write(join['on'], inner)}"
        condition = "TRUE" if is_leaky else self._write_reach(rows, alias)
        where = self.write(rows["where"], inner) if rows["where"] else "TRUE"
        self._depth -= 1
        return f"{text} WHERE {condition} AND {where}"

    def _name_source(self, source: Mapping[str, Any]) -> str:
        if self.has_own_rows_by_function and "own" in source:
            return f"{self.name_table(name_own_rows(source['table'], source['own']))}()"
        return self.name_table(source["table"])

    def _write_reached(self, source: Mapping[str, Any], alias: str, fences: Mapping[str, str]) -> str:
        """Writes a table of a subquery with only those of its rows that the subquery reaches."""
        reach = self._write_reach(source, alias)
        fence = "" if reach in ("TRUE", "FALSE") else fences.get(self.dialect, "")
        return f"(SELECT * FROM {self._name_source(source)} AS {alias} WHERE {reach} {fence}) AS {alias}"

    def _write_reach(self, source: Mapping[str, Any], alias: str) -> str:
        """Writes the condition for the rows of a table that a subquery reaches."""
        table = self._catalogue.table(source["table"])
        if "own" in source:
            is_narrowed = self.has_own_rows_by_function
            return "TRUE" if is_narrowed else self.write(show_own_rows(table, source["own"]), {"": alias})
        if table.name in self._path:
            raise InvalidExpression(
                f"The policies of `{table.name}` lead back to `{table.name}`, in a circle.",
                remediation=advise_against_circle(table),
            )
        self._path.append(table.name)
        condition = self.write(allowed_rows(table, "SELECT", self._actor), {"": alias})
        self._path.pop()
        return condition

    def _write_any(self, tree: Expression, scope: Scope) -> str:
        if self.dialect == "postgresql":
            value = self.write(tree[1], scope)
            return f"({value} = ANY ({self.write(tree[2], scope)}))"
        no_array = self.write(["is", tree[2], "null"], scope)
        value = self.write(tree[1], scope)
        return f"iif({no_array}, NULL, {value} IN (SELECT value FROM json_each({self.write(tree[2], scope)})))"

    def _write_case(self, tree: Expression, scope: Scope) -> str:
        parts = [
            f"WHEN {self.write(condition, scope)} THEN {'NULL' if value is None else self.write(value, scope)}"
            for condition, value in tree[1]
        ]
        default = "" if tree[2] is None else f" ELSE {self.write(tree[2], scope)}"
        return f"(CASE {' '.join(parts)}{default} END)"

    def _write_claim(self, tree: Expression, scope: Scope) -> str:
        del scope
        return self.value(self._actor.find_claim(tree[1]), "?" if self.dialect == "sqlite" else "?::text")

    def _write_behind(self, tree: Expression, scope: Scope) -> str:
        """Writes a condition that is evaluated only on rows that a policy opens, whatever plan the database makes."""
        _, name, policy, condition = tree
        is_open = self._write_opened(self._catalogue.table(name), policy, scope[""])
        return f"CASE WHEN {is_open} THEN {self.write(condition, scope)} END"

    def _write_opened(self, table: TableInfo, policy: Expression, alias: str) -> str:
        """Writes whether a policy opens a row, in a form that stays true of that row wherever it stands."""
        row = next((each for each in _ROW_NUMBERS if each not in table.columns), None)
        if self.dialect == "postgresql" or row is None:
            return self.write(policy, {"": alias})
        # SQLite puts constants from the rest of the statement into a policy on the same row, so that it could be true
        # of hidden rows: here it looks at the row under a name of its own.
        again = self.name_alias()
        is_open = self.write(policy, {"": again})
        source = f"{self.name_table(table.name)} AS {again}"
        return f"EXISTS (SELECT 1 FROM {source} WHERE {again}.{row} = {alias}.{row} AND {is_open})"

    def _write_among(self, tree: Expression, scope: Scope) -> str:
        places = ", ".join(self.value(value) for value in tree[2])
        return f"({scope['']}.{quote(tree[1])} IN ( {places}))"

    def _write_written(self, tree: Expression, scope: Scope) -> str:
        sql: str = tree[1](scope)
        return sql

    def _write_column(self, tree: Expression, scope: Scope) -> str:
        return f"{scope[tree[1]]}.{quote(tree[2])}"

    def _write_value(self, tree: Expression, scope: Scope) -> str:
        del scope
        kind = parse_type(tree[1])
        return self.value(kind.encode(tree[2], self.dialect), kind.bind(self.dialect))

    def _write_number(self, tree: Expression, scope: Scope) -> str:
        del scope
        if self.dialect == "postgresql":
            return self.value(tree[1], "?::numeric")
        is_integer = "." not in tree[1] and abs(int(tree[1])) < 2**63
        return self.value(int(tree[1]) if is_integer else float(tree[1]))

    def _write_user(self, tree: Expression, scope: Scope) -> str:
        del scope
        text = "?" if self.dialect == "sqlite" else "?::uuid" if tree[0] == "user_uuid" else "?::text"
        return self.value(self._actor.user_id, text)

    def _write_role(self, tree: Expression, scope: Scope) -> str:
        del tree, scope
        return self.value(self._actor.user_role, "?" if self.dialect == "sqlite" else "?::text")

    def _write_now(self, tree: Expression, scope: Scope) -> str:
        del scope
        now: Any = self._now
        if len(tree) > 1:
            now = shift_moment(now, tree[1]) if isinstance(now, str) else Shift(tree[1])
        return self.value(now, "?" if self.dialect == "sqlite" else "?::timestamptz")

    def _write_concat(self, tree: Expression, scope: Scope) -> str:
        return f"({' || '.join(self.write(part, scope) for part in tree[1:])})"

    def _write_exact(self, tree: Expression, scope: Scope) -> str:
        def write(part: Expression) -> str:
            if self.dialect == "sqlite":
                # A float would lose digits of the literal.
                return self.value(part[1]) if part[0] == "number" else self.write(part, scope)
            return f"({self.write(part, scope)})::numeric"

        left, right = write(tree[2]), write(tree[3])
        if self.dialect == "sqlite":
            return f"exact('{tree[1]}', {left}, {right})"
        return f"({left} {tree[1]} {right})"

    def _write_exact_choice(self, tree: Expression, scope: Scope) -> str:
        return self.write(tree[1], scope)

    def _write_json_number(self, tree: Expression, scope: Scope) -> str:
        """Writes JSON as the number that it is: null if it is anything else."""
        if self.dialect == "sqlite":
            kind = f"json_type({self.write(tree[1], scope)})"
            return f"exact_number(iif({kind} IN ('integer', 'real'), json_as_text({self.write(tree[1], scope)}), NULL))"
        kind = f"jsonb_typeof({self.write(tree[1], scope)})"
        return f"(CASE WHEN {kind} = 'number' THEN ({self.write(tree[1], scope)} #>> '{{}}')::numeric END)"

    def _write_generated(self, tree: Expression, scope: Scope) -> str:
        """Writes a value as a column of a type stores it. Null if it does not fit, which `fits` refuses."""
        kind = parse_type(tree[2])
        if not kind.is_exact:
            value = self.write(tree[1], scope)
            if self.dialect == "sqlite":
                return f"CAST({value} AS REAL)" if kind.is_number else value
            return f"({value})::{kind.cast_name}"
        if kind.bounds is None:
            return self._write_rounded(tree[1], kind, scope)
        fits, value = self._write_fits(tree, scope), self._write_rounded(tree[1], kind, scope)
        if kind.name != "numeric":
            value = f"exact_number({value})" if self.dialect == "sqlite" else f"({value})::{kind.cast_name}"
        return f"CASE WHEN {fits} THEN {value} END"

    def _write_fits(self, tree: Expression, scope: Scope) -> str:
        kind = parse_type(tree[2])
        assert kind.bounds is not None
        low, high = kind.bounds
        value = self._write_rounded(tree[1], kind, scope)
        if self.dialect == "sqlite":
            return f"exact_between({value}, '{low}', '{high}')"
        return f"({value} BETWEEN {low}::numeric AND {high}::numeric)"

    def _write_rounded(self, tree: Expression, kind: ColumnType, scope: Scope) -> str:
        value = self.write(tree, scope)
        if self.dialect == "sqlite":
            return f"exact('+', {value}, 0)" if kind.bounds is None else f"exact_round({value}, {kind.scale or 0})"
        return f"({value})::numeric" if kind.bounds is None else f"round(({value})::numeric, {kind.scale or 0})"

    def _write_json(self, tree: Expression, scope: Scope) -> str:
        left = self.write(tree[1], scope)
        if self.dialect == "sqlite":
            for step in tree[2]:
                left = self._write_member(left, step)
            return f"json_as_text({left})" if tree[3] else left
        for position, step in enumerate(tree[2]):
            arrow = "->>" if tree[3] and position == len(tree[2]) - 1 else "->"
            left = f"({left} {arrow} {self.value(step, '?::int' if isinstance(step, int) else '?::text')})"
        return left

    def _write_member(self, sql: str, step: str | int) -> str:
        """Writes the access to a member of JSON by name or number. SQLite would read `$` and `[` as a path."""
        if isinstance(step, int):
            return f"({sql} -> {self.value(step)})"
        if step.isprintable() and not {'"', "\\"} & set(step):
            path = f'$."{step}"'
            return f"({sql} -> {self.value(path)})"
        return f"json_member({sql}, {self.value(step)})"

    def _write_cast(self, tree: Expression, scope: Scope) -> str:
        inner = self.write(tree[1], scope)
        if self.dialect == "sqlite":
            return f"CAST({inner} AS TEXT)" if tree[2] == "text" else inner
        return f"({inner})::{parse_type(tree[2]).cast_name}"

    def _write_aggregate(self, tree: Expression, scope: Scope) -> str:
        function = tree[1]
        if tree[2] is None:
            return "count(*)"
        operand = self.write(tree[2], scope)
        if function == "avg":
            real = f"CAST({operand} AS REAL)" if self.dialect == "sqlite" else f"({operand})::double precision"
            return f"avg({real})"
        if function == "sum" and self.dialect == "sqlite" and parse_type(tree[3]).name in ("bigint", "numeric"):
            return f"decimal_sum({operand})"
        return f"{function}({operand})"

    def _write_distance(self, tree: Expression, scope: Scope) -> str:
        left, right = self.write(tree[2], scope), self.write(tree[3], scope)
        if self.dialect == "sqlite":
            return f"vector_{tree[1]}({left}, {right})"
        operator = {"cosine": "<=>", "l2": "<->", "inner": "<#>"}[tree[1]]
        return f"({left} {operator} {right})"

    def _write_call(self, tree: Expression, scope: Scope) -> str:
        if tree[1] == "abs":
            operand = self.write(tree[2], scope)
            # The smallest integer has no positive counterpart in its type.
            return f"absolute({operand})" if self.dialect == "sqlite" else f"abs({operand} * 1.0)"
        name = self._fold if tree[1] == "lower" else tree[1]
        return f"{name}({', '.join(self.write(part, scope) for part in tree[2:])})"

    writers: Mapping[str, Callable[["SqlWriter", Expression, Scope], str]] = {
        "concat": _write_concat,
        "exact": _write_exact,
        "exact_choice": _write_exact_choice,
        "generated": _write_generated,
        "fits": _write_fits,
        "and": _write_joined,
        "or": _write_joined,
        "not": _write_not,
        "true": _write_constant,
        "false": _write_constant,
        "isdistinct": _write_distinct,
        "is": _write_is,
        "in": _write_in,
        "like": _write_like,
        "ilike": _write_like,
        "contains": _write_contains,
        "contained": _write_contains,
        "overlaps": _write_contains,
        "search": _write_search,
        "exists": _write_exists,
        "in_rows": _write_in_rows,
        "lookup": _write_lookup,
        "count_rows": _write_count,
        "any": _write_any,
        "case": _write_case,
        "claim": _write_claim,
        "behind": _write_behind,
        "among": _write_among,
        "written": _write_written,
        "column": _write_column,
        "value": _write_value,
        "number": _write_number,
        "user": _write_user,
        "user_uuid": _write_user,
        "role": _write_role,
        "now": _write_now,
        "json": _write_json,
        "json_number": _write_json_number,
        "cast": _write_cast,
        "call": _write_call,
        "aggregate": _write_aggregate,
        "distance": _write_distance,
    }
