"""Whatever tables, policies, rows and queries there are, the answer is that of a model in memory, on both databases.

The model knows three values of logic, the order of nulls and keys, and how policies add up; it knows no SQL.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.http.installation import Headers, Installation, open_installation
from tests.tools.data.conftest import ADA, BEN, Tables

Tree = tuple[Any, ...]
Row = dict[str, Any]

# Few values, so that they are often alike. As they are answered; `_of` makes them comparable.
VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "B", "ä", "a%b", 'c"d, (e)', "Ab", "it's", "null", "a\\b"],
    "integer": [-2, 0, 1, 7],
    "bigint": ["-1", "0", "9223372036854775807"],
    "numeric": ["-1.5", "0", "2", "10", "12345678901234567890.5"],
    "double precision": [-0.5, 0.25, 3.0],
    "boolean": [True, False],
    "date": ["2024-02-29", "1999-12-31"],
    "uuid": [ADA, BEN],
}
PATTERNS = ["a%", "%b%", "_", "%"]
COLUMNS = {kind.split()[0]: kind for kind in VALUES}
OPERATORS = {"=": "eq", "<>": "neq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
CALLERS: dict[str, tuple[str, str | None]] = {
    "service": ("service", None),
    "anon": ("anon", None),
    "ada": ("user", ADA),
    "ben": ("user", BEN),
}
ID = "id"


@dataclass
class Policy:
    command: str
    role: str | None
    restrictive: bool
    using: Tree
    check: Tree | None


@dataclass
class Case:
    columns: list[str]
    rows: list[Row]
    policies: list[Policy]
    steps: list[Tree]
    log: list[Any] = field(default_factory=list)


def conditions(columns: list[str], *, of_policies: bool) -> st.SearchStrategy[Tree]:
    leaves: list[st.SearchStrategy[Tree]] = []
    for column in columns:
        values = st.sampled_from(VALUES[COLUMNS[column]])
        operators = st.sampled_from(sorted(OPERATORS) if column != "boolean" else ["=", "<>"])
        leaves.append(st.tuples(st.just("compare"), st.just(column), operators, values))
        leaves.append(st.tuples(st.just("null"), st.just(column)))
        leaves.append(st.tuples(st.just("in"), st.just(column), st.lists(values, min_size=1, max_size=3).map(tuple)))
    if "text" in columns:
        leaves.append(st.tuples(st.just("like"), st.just("text"), st.sampled_from(PATTERNS)))
    if of_policies:
        leaves += [st.just(("own",)), st.just(("own",))]
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
        ),
        max_leaves=5,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    more = draw(st.lists(st.sampled_from(sorted(COLUMNS.keys() - {"uuid"})), min_size=1, max_size=4, unique=True))
    columns = ["uuid", *more]
    row = st.fixed_dictionaries({name: st.none() | st.sampled_from(VALUES[COLUMNS[name]]) for name in columns})
    rows = draw(st.lists(row, max_size=12))
    rule, search = conditions(columns, of_policies=True), conditions(columns, of_policies=False)
    policy = st.builds(
        Policy,
        st.sampled_from(["ALL", "SELECT", "SELECT", "INSERT", "UPDATE", "DELETE"]),
        st.sampled_from([None, None, "user", "anon"]),
        st.sampled_from([False, False, False, True]),
        rule,
        st.none() | rule,
    )
    order = st.tuples(
        st.sampled_from(columns),
        st.sampled_from(["", ".asc", ".desc"]),
        st.sampled_from(["", ".nullsfirst", ".nullslast"]),
    )
    caller = st.sampled_from(sorted(CALLERS))
    changes = st.fixed_dictionaries({}, optional={n: st.sampled_from(VALUES[COLUMNS[n]]) for n in columns}).filter(bool)
    step = st.one_of(
        st.tuples(
            st.just("read"),
            caller,
            st.none() | search,
            st.lists(order, max_size=2),
            st.integers(0, 5),
            st.integers(0, 3),
        ),
        st.tuples(st.just("read"), caller, st.none() | search, st.lists(order, max_size=2), st.just(100), st.just(0)),
        st.tuples(st.just("insert"), caller, row),
        st.tuples(st.just("update"), caller, search, changes),
        st.tuples(st.just("delete"), caller, search),
    )
    return Case(columns, rows, draw(st.lists(policy, max_size=4)), draw(st.lists(step, min_size=1, max_size=8)))


# The model.


def _of(column: str, value: Any) -> Any:
    kind = COLUMNS[column]
    if value is None or kind in ("text", "uuid", "boolean", "integer", "double precision"):
        return value
    return {"bigint": int, "numeric": Decimal, "date": date.fromisoformat}[kind](value)  # type: ignore[operator]


def holds(tree: Tree, row: Row, user: str | None) -> bool | None:  # noqa: PLR0911 - one for each kind
    match tree:
        case ("own",):
            return None if user is None or row["uuid"] is None else bool(row["uuid"] == user)
        case ("compare", column, operator, value):
            left, right = _of(column, row[column]), _of(column, value)
            if left is None:
                return None
            found = {"=": left == right, "<>": left != right}
            if operator in found:
                return bool(found[operator])
            return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator])
        case ("null", column):
            return row[column] is None
        case ("in", column, values):
            return None if row[column] is None else row[column] in values
        case ("like", column, pattern):
            known = {"%": ".*", "_": "."}
            text = "".join(known.get(character, re.escape(character)) for character in pattern)
            return None if row[column] is None else re.fullmatch(text, row[column], re.DOTALL) is not None
        case ("not", inner):
            value = holds(inner, row, user)
            return None if value is None else not value
        case (("and" | "or") as word, inner):
            values = [holds(each, row, user) for each in inner]
            decisive = word == "or"
            return decisive if decisive in values else None if None in values else not decisive
    raise AssertionError(tree)


class Model:
    def __init__(self, case: Case) -> None:
        self.policies = case.policies
        self.rows = {number: {ID: number, **row} for number, row in enumerate(case.rows, 1)}
        self.next = len(case.rows) + 1

    def applies(self, command: str, role: str) -> list[Policy]:
        return [p for p in self.policies if p.command in (command, "ALL") and p.role in (None, role)]

    def admits(self, command: str, caller: str, row: Row, *, after: bool = False) -> bool:
        role, user = CALLERS[caller]
        if role == "service":
            return True
        found = self.applies(command, role)
        truth = [(p.restrictive, holds((p.check if after else None) or p.using, row, user) is True) for p in found]
        return any(true for narrow, true in truth if not narrow) and all(true for narrow, true in truth if narrow)

    def is_closed(self, command: str, caller: str) -> bool:
        """Whether nothing at all is open to a visitor, who is then asked to sign in."""
        return caller == "anon" and all(p.restrictive for p in self.applies(command, "anon"))

    def reach(self, caller: str, search: Tree | None, *commands: str) -> list[Row]:
        return [
            row
            for row in self.rows.values()
            if all(self.admits(command, caller, row) for command in commands)
            and (search is None or holds(search, row, None) is True)
        ]

    def follow(self, step: Tree) -> tuple[int, Any]:  # noqa: PLR0911 - one for each kind and refusal
        kind, caller = step[:2]
        command = {"read": "SELECT", "insert": "INSERT", "update": "UPDATE", "delete": "DELETE"}[kind]
        if self.is_closed(command, caller):
            return 401, None
        if kind == "read":
            _, _, search, orders, limit, offset = step
            found = sorted(self.reach(caller, search, "SELECT"), key=lambda row: row[ID])
            for column, direction, nulls in reversed(orders):
                down = direction == ".desc"
                first = nulls == ".nullsfirst" or (down and nulls != ".nullslast")
                empty = [row for row in found if row[column] is None]
                full = [row for row in found if row[column] is not None]
                # A sort that is turned around would turn around those that are alike, too.
                full.sort(key=lambda row: _of(column, row[column]), reverse=down)
                found = empty + full if first else full + empty
            return 200, found[offset : offset + limit]
        if kind == "insert":
            row = {ID: self.next, **step[2]}
            if not self.admits("INSERT", caller, row, after=True):
                return 403, None
            self.rows[self.next] = row
            self.next += 1
            return 201, row
        reached = self.reach(caller, step[2], command, "SELECT")
        if kind == "delete":
            for row in reached:
                del self.rows[row[ID]]
            return 200, reached
        changed = [{**row, **step[3]} for row in reached]
        if not all(self.admits("UPDATE", caller, row, after=True) for row in changed):
            return 403, None
        self.rows |= {row[ID]: row for row in changed}
        return 200, changed


# What is asked of the server.


def write_sql(tree: Tree) -> str:  # noqa: PLR0911 - one for each kind
    match tree:
        case ("own",):
            return "uuid = current_user_id()"
        case ("compare", column, operator, value):
            return f"{column} {operator} {_literal(column, value)}"
        case ("null", column):
            return f"{column} is null"
        case ("in", column, values):
            return f"{column} in ({', '.join(_literal(column, value) for value in values)})"
        case ("like", column, pattern):
            return f"{column} like '{pattern}'"
        case ("not", inner):
            return f"not ({write_sql(inner)})"
        case (word, inner):
            return f" {word} ".join(f"({write_sql(each)})" for each in inner)
    raise AssertionError(tree)


def _literal(column: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if COLUMNS[column] in ("text", "uuid", "date"):
        return "'" + str(value).replace("'", "''") + "'"
    return str(value)


def write_filter(tree: Tree, negated: str = "") -> str:
    """A condition as a part of `and=(...)`."""
    match tree:
        case ("compare", column, operator, value):
            return f"{column}.{negated}{OPERATORS[operator]}.{_quote(value)}"
        case ("null", column):
            return f"{column}.{negated}is.null"
        case ("in", column, values):
            return f"{column}.{negated}in.({','.join(map(_quote, values))})"
        case ("like", column, pattern):
            return f"{column}.{negated}like.{_quote(pattern)}"
        case ("not", inner):
            return write_filter(inner, "" if negated else "not.")
        case (word, inner):
            return f"{negated}{word}({','.join(map(write_filter, inner))})"
    raise AssertionError(tree)


def _quote(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_query(search: Tree | None, orders: list[tuple[str, str, str]] = [], **more: int) -> str:  # noqa: B006
    parts = [] if search is None else [f"and={quote(f'({write_filter(search)})')}"]
    parts += [f"order={','.join(''.join(order) for order in orders)}"] if orders else []
    return "&".join([*parts, *(f"{name}={value}" for name, value in more.items())])


async def follow(tables: Tables, headers: dict[str, Headers | None], step: Tree) -> tuple[int, Any]:
    kind, caller = step[:2]
    by = headers[caller]
    if kind == "read":
        _, _, search, orders, limit, offset = step
        answer = await tables.ask("GET", f"/rows?{write_query(search, orders, limit=limit, offset=offset)}", None, by)
    elif kind == "insert":
        answer = await tables.ask("POST", "/rows", step[2], by)
    elif kind == "update":
        answer = await tables.ask("PATCH", f"/rows?{write_query(step[2])}", step[3], by)
    else:
        answer = await tables.ask("DELETE", f"/rows?{write_query(step[2])}", None, by)
    assert answer.status in (200, 201, 401, 403), answer.content
    return answer.status, answer.json if answer.status < 300 else None


async def check(world: Installation, case: Case) -> None:
    tables = Tables(world, await world.create_app())
    columns: dict[str, Any] = {name: {"type": COLUMNS[name]} for name in case.columns}
    await tables.apply({"rows": {"columns": {ID: {"type": "serial", "primaryKey": True}, **columns}}})
    if case.rows:
        await tables.insert("rows", *case.rows)
    for number, policy in enumerate(case.policies):
        check = {} if policy.check is None else {"with_check_expression": write_sql(policy.check)}
        fields = {"command": policy.command, "restrictive": policy.restrictive, **check}
        fields |= {} if policy.role is None else {"role": policy.role}
        await tables.policy("rows", f"p{number}", using_expression=write_sql(policy.using), **fields)
    headers: dict[str, Headers | None] = {
        "service": None,
        "anon": {},
        "ada": await tables.user(ADA),
        "ben": await tables.user(BEN),
    }
    model = Model(case)
    for step in case.steps:
        expected = model.follow(step)
        status, found = await follow(tables, headers, step)
        if step[0] in ("update", "delete") and found is not None:
            found, expected = sorted(found, key=_id), (expected[0], sorted(expected[1], key=_id))
        if step[0] == "insert" and found is not None:
            # A number that a refused insert has taken is not given back everywhere.
            expected = (expected[0], {**expected[1], ID: found[ID]})
            model.rows[found[ID]] = model.rows.pop(model.next - 1) | {ID: found[ID]}
            model.next = found[ID] + 1
        assert (status, found) == expected, step
    everything = sorted(model.rows.values(), key=_id)
    assert await tables.list("rows?limit=1000") == everything


def _id(row: Row) -> int:
    number: int = row[ID]
    return number


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Installation]]:
    with asyncio.Runner() as runner:
        opening = open_installation(tmp_path_factory.mktemp("model"), plan="enterprise")
        yield runner, runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


def test_tables_answer_as_the_model_does(running: tuple[asyncio.Runner, Installation]) -> None:
    runner, world = running

    @settings(max_examples=15, deadline=None)
    @given(cases())
    def holds_for(case: Case) -> None:
        runner.run(check(world, case))

    holds_for()
