"""Tables, policies and rows in memory, and what each caller may see and write of them. It knows no SQL.

It knows three values of logic, the order of nulls and keys, how policies add up, and what references do.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tests.tools.data.conftest import ADA, BEN

Tree = tuple[Any, ...]
Row = dict[str, Any]
ID, PARENT = "id", "parent"
CALLERS: dict[str, tuple[str, str | None]] = {
    "service": ("service", None),
    "anon": ("anon", None),
    "ada": ("user", ADA),
    "ben": ("user", BEN),
}


@dataclass(frozen=True)
class Field:
    kind: str
    nullable: bool = True
    default: Any = None
    """A value, or `own`: the id of the user who inserts the row."""
    unique: bool = False


@dataclass(frozen=True)
class Policy:
    command: str
    role: str | None
    restrictive: bool
    using: Tree | None
    check: Tree | None


@dataclass(frozen=True)
class Table:
    """references: by column, the table whose key it names, and what becomes of the row when that row is deleted.

    mode: `policies`; `isolated`, where each user has their own rows by the column `uuid`; `open`, without row-level
    security.
    """

    name: str
    fields: dict[str, Field]
    references: dict[str, tuple[str, str]]
    policies: tuple[Policy, ...] = ()
    mode: str = "policies"

    @property
    def columns(self) -> list[str]:
        return [ID, *self.fields, *self.references]


@dataclass(frozen=True)
class Query:
    """columns: pairs of the name in the answer and the column; none for all. orders: of a column, or of one of the row
    that a row refers to, as `table(column)`.
    """

    table: str
    columns: tuple[tuple[str, str], ...] = ()
    search: Tree | None = None
    orders: tuple[tuple[str, str, str], ...] = ()
    limit: int | None = None
    offset: int = 0
    embeds: tuple["Embed", ...] = ()


@dataclass(frozen=True)
class Embed:
    """many: the rows that refer to a row, and not the one that it refers to. inner: rows without any are left out.
    spread: the values of the one are those of the row.
    """

    query: Query
    many: bool
    inner: bool
    spread: bool = False


@dataclass(frozen=True)
class Refusal:
    """One of the statuses that the model would take: which of several mistakes is named first is left open."""

    statuses: frozenset[int]


@dataclass
class Found:
    rows: list[Row]
    total: int = 0


def comparable(kind: str, value: Any) -> Any:
    """A value as it is answered, as one that Python compares as the documentation says."""
    convert: dict[str, Callable[[Any], Any]] = {
        "bigint": int,
        "numeric": Decimal,
        "date": date.fromisoformat,
        "timestamptz": datetime.fromisoformat,
    }
    return value if value is None or kind not in convert else convert[kind](value)


def _compare(left: Any, operator: str, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if operator in ("=", "<>"):
        return bool((left == right) is (operator == "="))
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator])


def _join(decisive: bool, values: Iterable[bool | None]) -> bool | None:
    values = list(values)
    return decisive if decisive in values else None if None in values else not decisive


def _matches(value: str | None, pattern: str) -> bool | None:
    wildcards = {"%": ".*", "_": "."}
    text = "".join(wildcards.get(character, re.escape(character)) for character in pattern)
    return None if value is None else re.fullmatch(text, value, re.DOTALL) is not None


def _as_json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class Model:
    tables: dict[str, Table]
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {name: {} for name in self.tables}

    def kind(self, table: str, column: str) -> str:
        fields = self.tables[table].fields
        return fields[column].kind if column in fields else "integer"

    # Conditions.

    def holds(self, tree: Tree, table: str, row: Row, caller: str) -> bool | None:  # noqa: PLR0911, PLR0912 - one for each kind
        def value(column: str) -> Any:
            return comparable(self.kind(table, column), row[column])

        def convert(column: str, constant: Any) -> Any:
            return comparable(self.kind(table, column), constant)

        role, user = CALLERS[caller]
        match tree:
            case ("true",):
                return True
            case ("own",):
                return _compare(row["uuid"], "=", user)
            case ("signed in",):
                return user is not None
            case ("role", name):
                # Users have the role `user`, and visitors none.
                return _compare("user" if role == "user" else None, "=", name)
            case ("compare", column, operator, constant):
                return _compare(value(column), operator, convert(column, constant))
            case ("columns", left, operator, right):
                return _compare(value(left), operator, value(right))
            case ("null", column):
                return row[column] is None
            case ("in", column, constants):
                matches = [_compare(value(column), "=", convert(column, each)) for each in constants]
                return _join(decisive=True, values=matches)
            case ("between", column, low, high):
                ends = (
                    _compare(value(column), ">=", convert(column, low)),
                    _compare(value(column), "<=", convert(column, high)),
                )
                return _join(decisive=False, values=ends)
            case ("distinct", column, constant):
                return bool(value(column) != convert(column, constant))
            case ("like", column, pattern):
                return _matches(row[column], pattern)
            case ("ilike", column, pattern):
                return _matches(None if row[column] is None else row[column].lower(), pattern.lower())
            case ("lower", column, constant):
                return _compare(None if row[column] is None else row[column].lower(), "=", constant)
            case ("length", column, operator, constant):
                return _compare(None if row[column] is None else len(row[column]), operator, constant)
            case ("coalesce", column, other, operator, constant):
                present_value = convert(column, other) if row[column] is None else value(column)
                return _compare(present_value, operator, convert(column, constant))
            case ("contains", column, constants):
                return None if row[column] is None else set(constants) <= set(row[column])
            case ("overlaps", column, constants):
                return None if row[column] is None else bool(set(constants) & set(row[column]))
            case ("json", column, step, constant):
                inside = row[column].get(step) if isinstance(row[column], dict) else None
                return _compare(_as_json_text(inside), "=", constant)
            case ("exists", other, theirs, ours, condition):
                return any(
                    _compare(each[theirs], "=", row[ours]) is True
                    and (condition is None or self.holds(condition, other, each, caller) is True)
                    for each in self.see(other, caller)
                )
            case ("in rows", column, other, theirs, condition):
                shown_values = [
                    each[theirs]
                    for each in self.see(other, caller)
                    if condition is None or self.holds(condition, other, each, caller) is True
                ]
                return _join(decisive=True, values=[_compare(row[column], "=", each) for each in shown_values])
            case ("own rows", column, other, theirs):
                # The caller's own rows, whether or not a policy shows them.
                own_values = [
                    each[theirs] for each in self.rows[other].values() if _compare(each["uuid"], "=", user) is True
                ]
                return _join(decisive=True, values=[_compare(row[column], "=", each) for each in own_values])
            case ("not", inner):
                truth = self.holds(inner, table, row, caller)
                return None if truth is None else not truth
            case (("and" | "or") as word, inner):
                return _join(word == "or", [self.holds(each, table, row, caller) for each in inner])
        raise AssertionError(tree)

    # Policies.

    def see(self, table: str, caller: str) -> list[Row]:
        return [row for row in self.rows[table].values() if self.admits("SELECT", table, caller, row)]

    def applying(self, command: str, table: str, role: str) -> list[Policy]:
        policies = self.tables[table].policies
        if self.tables[table].mode == "isolated":
            policies = (Policy("ALL", "user", False, ("own",), ("own",)),)  # noqa: FBT003
        return [each for each in policies if each.command in (command, "ALL") and each.role in (None, role)]

    def admits(self, command: str, table: str, caller: str, row: Row, *, after: bool = False) -> bool:
        role = CALLERS[caller][0]
        if role == "service" or self.tables[table].mode == "open":
            return True
        truth = []
        for policy in self.applying(command, table, role):
            tree = (policy.check or policy.using) if after else policy.using
            truth.append((policy.restrictive, tree is not None and self.holds(tree, table, row, caller) is True))
        return any(true for narrow, true in truth if not narrow) and all(true for narrow, true in truth if narrow)

    def is_closed(self, command: str, table: str, caller: str) -> bool:
        """Whether nothing at all is open to a visitor, who is then asked to sign in."""
        if caller != "anon" or self.tables[table].mode == "open":
            return False
        return all(policy.restrictive for policy in self.applying(command, table, "anon"))

    # Reading.

    def read(self, caller: str, query: Query) -> Refusal | Found:
        if self.is_closed("SELECT", query.table, caller):
            return Refusal(frozenset({401}))
        found_rows = self._find(caller, query, self.rows[query.table].values())
        return Found([self._show(caller, query, row) for row in _cut(query, found_rows)], len(found_rows))

    def _find(self, caller: str, query: Query, among: Iterable[Row]) -> list[Row]:
        found_rows = [
            row
            for row in among
            if self.admits("SELECT", query.table, caller, row)
            and (query.search is None or self.holds(query.search, query.table, row, caller) is True)
            and all(self._relate(caller, query.table, row, embed) for embed in query.embeds if embed.inner)
        ]
        found_rows.sort(key=lambda row: row[ID])
        for column, direction, nulls in reversed(query.orders):
            down = direction == ".desc"
            first = nulls == ".nullsfirst" or (down and nulls != ".nullslast")
            values = {row[ID]: self._value(caller, query, row, column) for row in found_rows}
            empty = [row for row in found_rows if values[row[ID]] is None]
            full = [row for row in found_rows if values[row[ID]] is not None]
            # A sort that is turned around would turn around those that are alike, too.
            full.sort(key=lambda row, values=values: values[row[ID]], reverse=down)  # type: ignore[misc]
            found_rows = empty + full if first else full + empty
        return found_rows

    def _value(self, caller: str, query: Query, row: Row, column: str) -> Any:
        """Returns the value that orders a row: null for a related row that is missing or hidden from the caller."""
        table, bracket, inner = column.rstrip(")").partition("(")
        if not bracket:
            return comparable(self.kind(query.table, column), row[column])
        [embed] = [each for each in query.embeds if each.query.table == table]
        related_rows = self._relate(caller, query.table, row, embed)
        return comparable(self.kind(table, inner), related_rows[0][inner]) if related_rows else None

    def _relate(self, caller: str, table: str, row: Row, embed: Embed) -> list[Row]:
        other = embed.query.table
        if embed.many:
            among = [each for each in self.rows[other].values() if each[PARENT] == row[ID]]
        else:
            among = [each for each in self.rows[other].values() if each[ID] == row[PARENT]]
        del table
        return self._find(caller, embed.query, among)

    def _show(self, caller: str, query: Query, row: Row) -> Row:
        named_columns = query.columns or tuple((name, name) for name in self.tables[query.table].columns)
        shown_row = {name: row[column] for name, column in named_columns}
        for embed in query.embeds:
            related_rows = self._relate(caller, query.table, row, embed)
            # Of the one row that a row refers to, a limit of 0 would leave nothing.
            rows = [self._show(caller, embed.query, each) for each in _cut(embed.query, related_rows)]
            if embed.spread:
                shown_row |= rows[0] if rows else dict.fromkeys(name for name, _ in embed.query.columns)
            else:
                shown_row[embed.query.table] = rows if embed.many else (rows[0] if rows else None)
        return shown_row

    # Writing. What is refused changes nothing.

    def insert(self, caller: str, table: str, given_rows: list[Row], conflict: str | None) -> Refusal | Found:
        if self.is_closed("INSERT", table, caller):
            return Refusal(frozenset({401}))
        statuses: set[int] = set()
        kept_rows = dict(self.rows[table])
        written_rows: list[Row] = []
        ids: set[int] = set()
        complete_rows = [self._complete(table, row, caller) for row in given_rows]
        statuses |= {400 for row in complete_rows if self._lacks_value(table, row)}
        for row, given_row in zip(complete_rows, given_rows, strict=True):
            before = kept_rows.get(row[ID])
            if before is not None and conflict == "ignore":
                continue
            if before is not None and conflict is None:
                statuses.add(409)
            if before is not None and conflict == "merge":
                if row[ID] in ids:
                    # The same row twice in one statement.
                    statuses |= {400, 409}
                may_change = self.admits("UPDATE", table, caller, before) and self.admits(
                    "SELECT", table, caller, before
                )
                statuses |= set() if may_change else {403}
            # What the row does not name stays as it is.
            kept_values = {} if before is None or conflict != "merge" else before
            row_after = {**row, **{name: value for name, value in kept_values.items() if name not in given_row}}
            if not self.admits("INSERT", table, caller, row_after, after=True):
                statuses.add(403)
            if conflict == "merge" and not self.admits("UPDATE", table, caller, row_after, after=True):
                statuses.add(403)
            kept_rows[row[ID]] = row_after
            written_rows.append(row_after)
            ids.add(row[ID])
        return self._keep(table, kept_rows, written_rows, statuses)

    def update(self, caller: str, table: str, search: Tree, changes: Row) -> Refusal | Found:
        if self.is_closed("UPDATE", table, caller):
            return Refusal(frozenset({401}))
        statuses = (
            {400} if self._lacks_value(table, {**dict.fromkeys(self.tables[table].columns, 0), **changes}) else set()
        )
        written_rows = [{**row, **changes} for row in self._reach(caller, table, search, "UPDATE")]
        statuses |= {403 for row in written_rows if not self.admits("UPDATE", table, caller, row, after=True)}
        return self._keep(table, {**self.rows[table], **{row[ID]: row for row in written_rows}}, written_rows, statuses)

    def delete(self, caller: str, table: str, search: Tree) -> Refusal | Found:
        if self.is_closed("DELETE", table, caller):
            return Refusal(frozenset({401}))
        deleted_rows = self._reach(caller, table, search, "DELETE")
        remaining_rows = {name: dict(rows) for name, rows in self.rows.items()}
        waiting = [(table, row) for row in deleted_rows]
        statuses: set[int] = set()
        while waiting:
            name, row = waiting.pop()
            if remaining_rows[name].pop(row[ID], None) is None:
                continue
            for child in self.tables.values():
                for column, (target, action) in child.references.items():
                    for other in [
                        each
                        for each in remaining_rows[child.name].values()
                        if target == name and each[column] == row[ID]
                    ]:
                        if action == "CASCADE":
                            waiting.append((child.name, other))
                        elif action == "SET NULL":
                            remaining_rows[child.name][other[ID]] = {**other, column: None}
        statuses |= {
            400
            for name in remaining_rows
            for row in remaining_rows[name].values()
            if self._dangles(remaining_rows, name, row)
        }
        if statuses:
            return Refusal(frozenset(statuses))
        self.rows = remaining_rows
        return Found(deleted_rows)

    def _reach(self, caller: str, table: str, search: Tree, command: str) -> list[Row]:
        return [
            row
            for row in self.see(table, caller)
            if self.admits(command, table, caller, row) and self.holds(search, table, row, caller) is True
        ]

    def _complete(self, table: str, given_row: Row, caller: str) -> Row:
        role, user = CALLERS[caller]
        row: Row = {ID: given_row[ID]}
        for name, each in self.tables[table].fields.items():
            default = user if each.default == "own" else each.default
            if name == "uuid" and self.tables[table].mode == "isolated" and role == "user":
                default = user
            row[name] = given_row.get(name, default)
        return {**row, **{column: given_row.get(column) for column in self.tables[table].references}}

    def _lacks_value(self, table: str, row: Row) -> bool:
        return any(row[name] is None for name, each in self.tables[table].fields.items() if not each.nullable)

    def _dangles(self, rows: dict[str, dict[int, Row]], table: str, row: Row) -> bool:
        return any(
            row[column] is not None and row[column] not in rows[target]
            for column, (target, _) in self.tables[table].references.items()
        )

    def _keep(self, table: str, rows: dict[int, Row], written_rows: list[Row], statuses: set[int]) -> Refusal | Found:
        after = {**self.rows, table: rows}
        statuses |= {400 for row in rows.values() if self._dangles(after, table, row)}
        for name, each in self.tables[table].fields.items():
            values = [row[name] for row in rows.values() if row[name] is not None]
            if each.unique and len(set(values)) < len(values):
                statuses.add(409)
        if statuses:
            return Refusal(frozenset(statuses))
        self.rows = after
        return Found(written_rows)


def _cut(query: Query, rows: list[Row]) -> list[Row]:
    return rows[query.offset :] if query.limit is None else rows[query.offset : query.offset + query.limit]
