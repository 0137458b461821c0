"""Whatever tables, policies, rows and queries there are, the answer is that of a model in memory, on both databases."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.http.installation import Answer, Headers, Installation, open_installation
from tests.tools.data.conftest import ADA, BEN, Tables
from tests.tools.data.model import (
    CALLERS,
    ID,
    PARENT,
    Embed,
    Field,
    Model,
    Policy,
    Query,
    Refusal,
    Row,
    Table,
    Tree,
)

# Few values, so that they are often alike. As they are answered.
VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "B", "ä", "Ä", "a%b", 'c"d, (e)', "Ab", "it's", "null", "a\\b", "user"],
    "integer": [-2, 0, 1, 7],
    "bigint": ["-1", "0", "9223372036854775807"],
    "numeric": ["-1.5", "0", "2", "10", "12345678901234567890.5"],
    "double precision": [-0.5, 0.25, 3.0],
    "boolean": [True, False],
    "date": ["2024-02-29", "1999-12-31"],
    "timestamptz": ["2024-02-29T12:00:00+00:00", "1999-12-31T23:59:59.5+00:00"],
    "uuid": [ADA, BEN],
    "text[]": [[], ["a"], ["b", "a"], ["a,b"]],
    "jsonb": [{}, {"a": "x"}, {"a": 1}, {"a": True}, {"a": None}, ["a"], "a"],
}
PATTERNS = ["a%", "%b%", "_", "%", "Ä"]
KINDS = {kind.split()[0].replace("[]", "_list"): kind for kind in VALUES}
"""The kind of a column by its name, of those beside `uuid`, which every table has."""
NUMBERS = ("integer", "bigint", "numeric", "double precision")
OPERATORS = {"=": "eq", "<>": "neq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
IDS = st.integers(1, 6)


@dataclass
class Case:
    tables: dict[str, Table]
    rows: list[tuple[str, list[Row]]]
    steps: list[Tree]


# What is drawn.


def conditions(table: Table, others: list[Table], *, of_policies: bool) -> st.SearchStrategy[Tree]:
    leaves: list[st.SearchStrategy[Tree]] = []
    kinds = {name: each.kind for name, each in table.fields.items()}
    for column, kind in kinds.items():
        values = st.sampled_from(VALUES[kind])
        leaves.append(st.tuples(st.just("null"), st.just(column)))
        if kind == "text[]":
            items = st.lists(st.sampled_from(["a", "b", "a,b"]), max_size=2).map(tuple)
            leaves += (
                [] if of_policies else [st.tuples(st.sampled_from(["contains", "overlaps"]), st.just(column), items)]
            )
            continue
        if kind == "jsonb":
            steps = st.sampled_from(["a", "b"])
            leaves.append(st.tuples(st.just("json"), st.just(column), steps, st.sampled_from(["x", "1", "true"])))
            continue
        operators = st.sampled_from(sorted(OPERATORS) if column != "boolean" else ["=", "<>"])
        leaves.append(st.tuples(st.just("compare"), st.just(column), operators, values))
        leaves.append(st.tuples(st.just("in"), st.just(column), st.lists(values, min_size=1, max_size=3).map(tuple)))
        leaves.append(st.tuples(st.just("distinct"), st.just(column), values))
        if of_policies:
            leaves.append(st.tuples(st.just("coalesce"), st.just(column), values, operators, values))
            if column != "boolean":
                leaves.append(st.tuples(st.just("between"), st.just(column), values, values))
    if "text" in kinds:
        leaves.append(st.tuples(st.sampled_from(["like", "ilike"]), st.just("text"), st.sampled_from(PATTERNS)))
        if of_policies:
            leaves.append(st.tuples(st.just("lower"), st.just("text"), st.sampled_from(["a", "ä", "ab"])))
            leaves.append(
                st.tuples(st.just("length"), st.just("text"), st.sampled_from(sorted(OPERATORS)), st.integers(0, 2))
            )
    numbers = [ID, *(name for name, kind in kinds.items() if kind in NUMBERS), *table.references]
    if of_policies:
        own: list[st.SearchStrategy[Tree]] = [st.just(("own",))] * 4
        leaves += [*own, st.just(("true",)), st.just(("role", "user")), st.just(("role", "editor"))]
        among = st.sampled_from(numbers)
        leaves.append(st.tuples(st.just("columns"), among, st.sampled_from(sorted(OPERATORS)), among))
        for other in [*others, table]:
            # The caller's own rows of the same table lead into no circle.
            own_pairs = [
                (theirs, ours)
                for theirs, ours in [(ID, PARENT), ("uuid", "uuid"), (ID, ID), (PARENT, PARENT), (PARENT, ID)]
                if ours in table.columns and theirs in other.columns
            ]
            leaves.append(
                st.builds(
                    lambda pair, other=other: ("own rows", pair[1], other.name, pair[0]), st.sampled_from(own_pairs)
                )
            )
        for other in others:
            pairs = [(ID, PARENT), ("uuid", "uuid"), (ID, ID)]
            theirs = st.sampled_from([pair for pair in pairs if pair[1] in table.columns and pair[0] in other.columns])
            inner = st.none() | conditions(other, [], of_policies=True)
            leaves.append(st.builds(lambda pair, tree, other=other: ("exists", other.name, *pair, tree), theirs, inner))
            leaves.append(
                st.builds(
                    lambda pair, tree, other=other: ("in rows", pair[1], other.name, pair[0], tree), theirs, inner
                )
            )
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
        ),
        max_leaves=4,
    )


@st.composite
def tables(draw: st.DrawFn, name: str, others: list[Table]) -> Table:
    names = draw(st.lists(st.sampled_from(sorted(KINDS.keys() - {"uuid"})), min_size=1, max_size=4, unique=True))
    fields = {"uuid": Field("uuid", default=draw(st.sampled_from([None, "own"])))}
    for column in names:
        kind = KINDS[column]
        nullable = draw(st.sampled_from([True, True, True, False]))
        is_plain = kind in ("text", "boolean", *NUMBERS)
        default = draw(st.none() | st.sampled_from(VALUES[kind])) if is_plain else None
        unique = kind in ("text", "integer", "numeric") and draw(st.sampled_from([False, False, False, True]))
        fields[column] = Field(kind, nullable, default, unique)
    references: dict[str, tuple[str, str]] = {}
    actions = st.sampled_from(["NO ACTION", "CASCADE", "SET NULL"])
    if others and draw(st.sampled_from([True, True, False])):
        references[PARENT] = (draw(st.sampled_from(others)).name, draw(actions))
    if draw(st.sampled_from([True, False, False])):
        references["boss"] = (name, draw(actions))
    table = Table(name, fields, references)
    rule = conditions(table, others, of_policies=True)
    policy = st.one_of(
        st.builds(
            Policy,
            st.sampled_from(["ALL", "SELECT", "SELECT", "INSERT", "UPDATE", "DELETE"]),
            st.sampled_from([None, None, "user", "anon"]),
            st.sampled_from([False, False, False, True]),
            rule,
            st.none() | rule,
        ),
        st.builds(
            Policy, st.just("INSERT"), st.sampled_from([None, "user", "anon"]), st.just(value=False), st.none(), rule
        ),
    )
    mode = draw(st.sampled_from(["policies"] * 6 + ["isolated", "open"]))
    policies = tuple(draw(st.lists(policy, max_size=4))) if mode == "policies" else ()
    return Table(name, fields, references, policies, mode)


def rows_of(table: Table, *, whole: bool) -> st.SearchStrategy[Row]:
    given_values: dict[str, st.SearchStrategy[Any]] = {}
    for name, each in table.fields.items():
        values = st.sampled_from(VALUES[each.kind])
        given_values[name] = values if whole and not each.nullable else st.none() | values
    for name in table.references:
        given_values[name] = st.none() | IDS
    if whole:
        return st.fixed_dictionaries({ID: IDS, **given_values})
    return st.fixed_dictionaries({ID: st.integers(1, 9)}, optional=given_values)


@st.composite
def queries(draw: st.DrawFn, tables_by_name: dict[str, Table], name: str, depth: int = 0) -> Query:
    table = tables_by_name[name]

    def ordered_columns(of: Table) -> list[str]:
        return [ID, *(column for column, each in of.fields.items() if each.kind not in ("text[]", "jsonb"))]

    embeds: list[Embed] = []
    if depth < 2:
        up = [table.references[PARENT][0]] if PARENT in table.references else []
        down = [each.name for each in tables_by_name.values() if each.references.get(PARENT, ("",))[0] == name]
        for other, many in [*((each, False) for each in up), *((each, True) for each in down)]:
            if draw(st.booleans()):
                inner = draw(st.sampled_from([False, False, True]))
                embed = Embed(draw(queries(tables_by_name, other, depth + 1)), many, inner)
                query = embed.query
                if not many and query.columns and not query.embeds and draw(st.booleans()):
                    # No name of the row is one of these.
                    spread = tuple((f"up_{column}", column) for _, column in query.columns)
                    embed = replace(embed, query=replace(query, columns=spread), spread=True)
                embeds.append(embed)
    order_columns = ordered_columns(table)
    order_columns += [
        f"{each.query.table}({column})"
        for each in embeds
        if not each.many
        for column in ordered_columns(tables_by_name[each.query.table])
    ]
    order = st.tuples(
        st.sampled_from(order_columns),
        st.sampled_from(["", ".asc", ".desc"]),
        st.sampled_from(["", ".nullsfirst", ".nullslast"]),
    )
    columns = draw(st.lists(st.sampled_from(table.columns), max_size=3, unique=True))
    renamed_columns = tuple((f"as_{column}" if draw(st.booleans()) else column, column) for column in columns)
    search = draw(st.none() | conditions(table, [], of_policies=False))
    limits = st.none() | st.integers(0, 4)
    limit = draw(limits)
    offset = 0 if limit is None else draw(st.integers(0, 2))
    return Query(name, renamed_columns, search, tuple(draw(st.lists(order, max_size=2))), limit, offset, tuple(embeds))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    tables_by_name: dict[str, Table] = {}
    for number in range(draw(st.integers(1, 3))):
        tables_by_name[f"t{number}"] = draw(tables(f"t{number}", list(tables_by_name.values())))
    rows = [(name, draw(st.lists(rows_of(table, whole=True), max_size=5))) for name, table in tables_by_name.items()]
    steps: list[Tree] = []
    caller = st.sampled_from(["service", "anon", "ada", "ada", "ben", "ben"])
    for kind in draw(
        st.lists(st.sampled_from(["read", "read", "read", "insert", "update", "delete"]), min_size=2, max_size=8)
    ):
        name = draw(st.sampled_from(sorted(tables_by_name)))
        table, by = tables_by_name[name], draw(caller)
        search = conditions(table, [], of_policies=False)
        if kind == "read":
            steps.append(("read", by, draw(queries(tables_by_name, name))))
        elif kind == "insert":
            given_rows = draw(st.lists(rows_of(table, whole=False), min_size=1, max_size=2))
            steps.append(("insert", by, name, given_rows, draw(st.sampled_from([None, None, "merge", "ignore"]))))
        elif kind == "update":
            changes = draw(rows_of(table, whole=False).filter(lambda row: len(row) > 1))
            steps.append(("update", by, name, draw(search), {k: v for k, v in changes.items() if k != ID}))
        else:
            steps.append(("delete", by, name, draw(search)))
    return Case(tables_by_name, rows, steps)


# What is asked of the server.


def write_sql(tree: Tree, table: Table, tables_by_name: dict[str, Table], alias: str = "") -> str:  # noqa: PLR0911, PLR0912 - one for each kind
    def literal(column: str, value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        kind = table.fields[column].kind if column in table.fields else "integer"
        return _literal(str(value)) if kind in ("text", "uuid", "date", "timestamptz") else str(value)

    def again(inner: Tree) -> str:
        return f"({write_sql(inner, table, tables_by_name, alias)})"

    match tree:
        case ("true",):
            return "true"
        case ("own",):
            return f"{alias}uuid = current_user_id()"
        case ("role", name):
            return f"current_user_role() = '{name}'"
        case ("compare", column, operator, value):
            return f"{alias}{column} {operator} {literal(column, value)}"
        case ("columns", left, operator, right):
            return f"{alias}{left} {operator} {alias}{right}"
        case ("null", column):
            return f"{alias}{column} is null"
        case ("in", column, values):
            return f"{alias}{column} in ({', '.join(literal(column, value) for value in values)})"
        case ("between", column, low, high):
            return f"{alias}{column} between {literal(column, low)} and {literal(column, high)}"
        case ("distinct", column, value):
            return f"{alias}{column} is distinct from {literal(column, value)}"
        case (("like" | "ilike") as word, column, pattern):
            return f"{alias}{column} {word} '{pattern}'"
        case ("lower", column, value):
            return f"lower({alias}{column}) = '{value}'"
        case ("length", column, operator, value):
            return f"length({alias}{column}) {operator} {value}"
        case ("coalesce", column, other, operator, value):
            return f"coalesce({alias}{column}, {literal(column, other)}) {operator} {literal(column, value)}"
        case ("json", column, step, value):
            return f"{alias}{column}->>'{step}' = '{value}'"
        case ("exists", other, theirs, ours, condition):
            inner = f"q.{theirs} = {alias or table.name + '.'}{ours}"
            if condition is not None:
                inner += f" and ({write_sql(condition, tables_by_name[other], tables_by_name, 'q.')})"
            return f"exists (select 1 from {other} q where {inner})"  # noqa: S608
        case ("in rows", column, other, theirs, condition):
            where = ""
            if condition is not None:
                where = f" where {write_sql(condition, tables_by_name[other], tables_by_name, 'q.')}"
            return f"{alias}{column} in (select q.{theirs} from {other} q{where})"  # noqa: S608
        case ("own rows", column, other, theirs):
            return f"{alias}{column} in (select q.{theirs} from current_user_rows('{other}', 'uuid') q)"  # noqa: S608
        case ("not", inner):
            return f"not {again(inner)}"
        case (word, inner):
            return f" {word} ".join(map(again, inner))
    raise AssertionError(tree)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def write_filter(tree: Tree, negation: str = "") -> str:  # noqa: PLR0911 - one for each kind
    """A condition as a part of `and=(...)`."""
    match tree:
        case ("compare", column, operator, value):
            return f"{column}.{negation}{OPERATORS[operator]}.{_quote(value)}"
        case ("null", column):
            return f"{column}.{negation}is.null"
        case ("in", column, values):
            return f"{column}.{negation}in.({','.join(map(_quote, values))})"
        case ("distinct", column, value):
            return f"{column}.{negation}isdistinct.{_quote(value)}"
        case (("like" | "ilike") as word, column, pattern):
            return f"{column}.{negation}{word}.{_quote(pattern)}"
        case (("contains" | "overlaps") as word, column, values):
            items = "{" + ",".join(f'"{value}"' for value in values) + "}"
            return f"{column}.{negation}{'cs' if word == 'contains' else 'ov'}.{_quote(items)}"
        case ("json", column, step, value):
            return f"{column}->>{step}.{negation}eq.{_quote(value)}"
        case ("not", inner):
            return write_filter(inner, "" if negation else "not.")
        case (word, inner):
            return f"{negation}{word}({','.join(map(write_filter, inner))})"
    raise AssertionError(tree)


def _quote(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_select(query: Query) -> str:
    columns = [name if name == column else f"{name}:{column}" for name, column in query.columns] or ["*"]
    embeds = [
        f"{'...' if each.spread else ''}{each.query.table}{'!inner' if each.inner else ''}({write_select(each.query)})"
        for each in query.embeds
    ]
    return ",".join([*columns, *embeds])


def write_query(query: Query, prefix: str = "") -> list[str]:
    parts = [] if query.search is None else [f"{prefix}and={quote(f'({write_filter(query.search)})')}"]
    parts += [f"{prefix}order={','.join(map(''.join, query.orders))}"] if query.orders else []
    parts += [f"{prefix}limit={query.limit}&{prefix}offset={query.offset}"] if query.limit is not None else []
    for embed in query.embeds:
        parts += write_query(embed.query, f"{prefix}{embed.query.table}.")
    return parts


async def follow(app_tables: Tables, by: Headers | None, step: Tree) -> Answer:
    match step:
        case ("read", _, query):
            path = f"/{query.table}?{'&'.join([f'select={quote(write_select(query))}', *write_query(query)])}"
            return await app_tables.ask("GET", path, None, by, prefer="count=exact")
        case ("insert", _, table, rows, conflict):
            resolution = {"prefer": "resolution=ignore-duplicates"} if conflict == "ignore" else {}
            return await app_tables.ask(
                "POST", f"/{table}{'?on_conflict=id' if conflict else ''}", rows, by, **resolution
            )
        case ("update", _, table, search, changes):
            return await app_tables.ask("PATCH", f"/{table}?{write_query(Query(table, search=search))[0]}", changes, by)
        case ("delete", _, table, search):
            return await app_tables.ask("DELETE", f"/{table}?{write_query(Query(table, search=search))[0]}", None, by)
    raise AssertionError(step)


async def make_tables(app_tables: Tables, tables_by_name: dict[str, Table]) -> None:
    document: dict[str, Any] = {}
    for name, table in tables_by_name.items():
        columns: dict[str, Any] = {ID: {"type": "integer", "primaryKey": True}}
        for column, each in table.fields.items():
            columns[column] = {"type": each.kind, "nullable": each.nullable, "unique": each.unique}
            if each.default is not None:
                is_text = each.kind == "text" and each.default != "own"
                default = _literal(each.default) if is_text else str(each.default).lower()
                columns[column]["default"] = "current_user_id()" if each.default == "own" else default
        for column, (target, action) in table.references.items():
            reference = {"table": target, "column": ID, "onDelete": action}
            columns[column] = {"type": "integer", "references": reference}
        document[name] = {"columns": columns}
    await app_tables.apply(document)
    for name, table in tables_by_name.items():
        if table.mode == "open":
            assert (await app_tables.ask("DELETE", f"/rls/{name}")).status == 200
        if table.mode == "isolated":
            assert (await app_tables.ask("POST", "/rls", {"table_name": name, "user_column": "uuid"})).status == 200
        for number, policy in enumerate(table.policies):
            trees = {"using_expression": policy.using, "with_check_expression": policy.check}
            fields: dict[str, Any] = {
                key: write_sql(tree, table, tables_by_name) for key, tree in trees.items() if tree is not None
            }
            fields |= {"command": policy.command, "restrictive": policy.restrictive}
            fields |= {} if policy.role is None else {"role": policy.role}
            await app_tables.policy(name, f"p{number}", **fields)


def expect(model: Model, step: Tree) -> Any:
    kind, *arguments = step
    writers: dict[str, Callable[..., Any]] = {"insert": model.insert, "update": model.update, "delete": model.delete}
    return model.read(*arguments) if kind == "read" else writers[kind](*arguments)


async def check(world: Installation, case: Case) -> None:
    app_tables = Tables(world, await world.create_app())
    await make_tables(app_tables, case.tables)
    headers: dict[str, Headers | None] = {
        "service": None,
        "anon": {},
        "ada": await app_tables.user(ADA),
        "ben": await app_tables.user(BEN),
    }
    assert headers.keys() == CALLERS.keys()
    model = Model(case.tables)
    fill = [("insert", "service", name, [row], None) for name, rows in case.rows for row in rows]
    for step in [*fill, *case.steps]:
        expected_answer = expect(model, step)
        answer = await follow(app_tables, headers[step[1]], step)
        if isinstance(expected_answer, Refusal):
            assert answer.status in expected_answer.statuses, (step, answer.content)
            continue
        assert answer.status in (200, 201), (step, answer.content)
        found_rows = answer.json
        if step[0] == "read":
            assert found_rows == expected_answer.rows, step
            assert answer.headers["x-total-count"] == str(expected_answer.total), step
        else:
            assert _sort(found_rows) == _sort(expected_answer.rows), step
    for name in case.tables:
        assert await app_tables.list(f"{name}?limit=1000") == _sort(list(model.rows[name].values()))


def _sort(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row[ID]))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Installation]]:
    with asyncio.Runner() as runner:
        opening = open_installation(tmp_path_factory.mktemp("model"), plan="enterprise")
        yield runner, runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


def test_tables_answer_as_the_model_does(running: tuple[asyncio.Runner, Installation]) -> None:
    runner, world = running

    @settings(max_examples=25, deadline=None)
    @given(cases())
    def holds_for(case: Case) -> None:
        runner.run(check(world, case))

    holds_for()
