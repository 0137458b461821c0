"""Whatever text a user's code sends, it reads and changes no more than the tools for rows would let that user.

Two apps have the same rows of Ada and the same rows that everybody may read, and differ in what is hidden from her.
Whatever she sends must answer alike in both: otherwise the answer, or the error, would tell of hidden rows.
"""

# ruff: noqa: E501, S608 - statements of SQL, each in one line

import asyncio
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.tools.core import BaobabError
from tests.http.installation import Headers, Installation, open_installation
from tests.tools.data.conftest import ADA, BEN, Tables
from tests.tools.data.test_sql import run
from tests.tools.data.test_sql_attacks import REFUSED

KEY = {"type": "integer", "primaryKey": True}
SCHEMA: dict[str, Any] = {
    "notes": {
        "columns": {
            "id": KEY, "user_id": "uuid", "public": {"type": "boolean", "default": "false"}, "body": "text",
            "n": "integer", "price": "numeric(10,2)", "more": "jsonb", "code": {"type": "text", "default": "'c'"},
        }
    },
    "tasks": {"columns": {"id": KEY, "note_id": "integer", "body": "text", "n": "integer"}},
    "closed": {"columns": {"id": KEY, "body": "text", "n": "integer"}},
}  # fmt: skip
POLICIES = (
    ("notes", "see", "SELECT", {"using_expression": "public or user_id = current_user_id()"}),
    ("notes", "add", "INSERT", {"with_check_expression": "user_id = current_user_id()"}),
    ("notes", "edit", "UPDATE", {"using_expression": "user_id = current_user_id() and code <> 'locked'"}),
    ("notes", "drop", "DELETE", {"using_expression": "user_id = current_user_id() and n < 5"}),
    ("tasks", "of_notes", "ALL", {"using_expression": "note_id in (select id from notes where user_id = current_user_id())"}),
)  # fmt: skip
OPEN = {
    "notes": [
        {"id": 1, "user_id": ADA, "public": False, "body": "mine", "n": 0, "price": "1.50", "more": {"a": "x"}, "code": "c"},
        {"id": 2, "user_id": ADA, "public": True, "body": "also mine", "n": 7, "price": "20.00", "more": None, "code": "locked"},
        {"id": 3, "user_id": BEN, "public": True, "body": "shown", "n": 2, "price": "3.00", "more": {"a": 1}, "code": "c"},
    ],
    "tasks": [{"id": 1, "note_id": 1, "body": "do", "n": 1}, {"id": 2, "note_id": 2, "body": "more", "n": None}],
    "closed": [],
}  # fmt: skip
HIDDEN: tuple[dict[str, list[dict[str, Any]]], ...] = (
    {
        "notes": [{"id": 501, "user_id": BEN, "public": False, "body": "x", "n": 0, "price": "0.00", "more": {"a": []}, "code": "c"}],
        "tasks": [{"id": 502, "note_id": 501, "body": "none", "n": 0}],
        "closed": [{"id": 503, "body": "1", "n": 9}],
    },
    {
        "notes": [
            {"id": 601, "user_id": BEN, "public": False, "body": "a\\", "n": 1000, "price": "99999.00", "more": {"a": "9"}, "code": "d"},
            {"id": 602, "user_id": None, "public": False, "body": None, "n": None, "price": None, "more": None, "code": None},
        ],
        "tasks": [],
        "closed": [{"id": 603, "body": "zzz", "n": 0}, {"id": 604, "body": "", "n": -1}],
    },
)  # fmt: skip
TABLES = ("notes", "tasks", "closed", "public.notes")
PATTERNS = ("'%m%'", "'_'", "'%\\'", "'a%'")


class Grammar:
    """Draws statements, most of which are valid."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._aliases = 0

    def statement(self) -> str:
        kind = self._random.choice(["select"] * 6 + ["update", "update", "delete", "insert", "upsert"])
        return {
            "select": self._query, "update": self._update, "delete": self._delete, "insert": self._insert,
            "upsert": self._upsert,
        }[kind]()  # fmt: skip

    def _query(self) -> str:
        pick = self._random.random()
        if pick < 0.15:
            return f"{self._select()} union {self._choose('', 'all ')}{self._select()}"
        if pick < 0.3:
            name = self._alias()
            return f"with {name}(id, body, n) as (select id, body, n from {self._table()}) {self._select(name)}"
        return self._select()

    def _select(self, table: str | None = None) -> str:
        alias = self._alias()
        source = f"{table or self._table()} {alias}"
        if self._random.random() < 0.3:
            other = self._alias()
            word = self._choose("join", "left join", "right join", "full join")
            source += f" {word} {self._table()} {other} on {self._condition(other, 1)}"
        where = f" where {self._condition(alias, 2)}" if self._random.random() < 0.7 else ""
        if self._random.random() < 0.25:
            having = f" having {self._number('', 0, f'max({alias}.n)')} > 0" if self._random.random() < 0.4 else ""
            return (
                f"select {alias}.n as a, {self._choose('count(*)', f'max({alias}.body)', f'sum(1 / {alias}.n)')} as b "
                f"from {source}{where} group by {alias}.n{having}"
            )
        items = f"{self._number(alias, 2)} as a, {self._text(alias, 2)} as b"
        if self._random.random() < 0.2:
            items = f"{items}, row_number() over (order by {self._number(alias, 1)}, {alias}.id) as c"
            return f"select {items} from {source}{where}".replace(", row", ", row")
        distinct = self._choose("", "", "distinct ")
        return f"select {distinct}{items} from {source}{where}"

    def _update(self) -> str:
        table = self._choose("notes", "tasks", "closed")
        value = self._choose(f"n = {self._number(table, 2)}", f"body = {self._text(table, 2)}", "id = id + 3000")
        if table == "notes" and self._random.random() < 0.2:
            value = self._choose(f"user_id = '{BEN}'", "public = not public", "code = 'c'")
        returning = self._choose("", " returning id", " returning *")
        return f"update {table} set {value} where {self._condition(table, 2)}{returning}"

    def _delete(self) -> str:
        table = self._choose("notes", "tasks", "closed")
        return f"delete from {table} where {self._condition(table, 2)}{self._choose('', ' returning body')}"

    def _insert(self) -> str:
        table = self._choose("notes", "tasks")
        owner = self._choose("current_user_id()", "current_user_id()::uuid", f"'{BEN}'", "null")
        if table == "tasks":
            return f"insert into tasks (id, note_id, body) select id + 2000, id, body from {self._table()}"
        alias = self._alias()
        return (
            f"insert into notes (id, user_id, body, n) select {alias}.id + 2000, {owner}, {self._text(alias, 1)}, "
            f"{self._number(alias, 1)} from {self._table()} {alias} where {self._condition(alias, 1)} returning *"
        )

    def _upsert(self) -> str:
        number = self._random.choice([1, 2, 3, 2100])
        return (
            f"insert into notes (id, user_id, body, n) values ({number}, current_user_id(), 'new', 3) on conflict (id) do "
            + self._choose("nothing", "update set body = notes.body || excluded.body, n = excluded.n + 1")
        )

    def _condition(self, alias: str, depth: int) -> str:
        if depth <= 0:
            column = f"{alias}.n" if alias else "n"
            return f"{column} {self._choose('=', '<>', '>', 'is distinct from')} {self._random.randint(-1, 9)}"
        inner = self._alias()
        return self._choose(
            f"({self._condition(alias, depth - 1)} {self._choose('and', 'or')} {self._condition(alias, depth - 1)})",
            f"not {self._condition(alias, depth - 1)}",
            f"{self._number(alias, depth - 1)} {self._choose('<', '>=', '<>')} {self._number(alias, depth - 1)}",
            f"{self._text(alias, depth - 1)} like {self._choose(*PATTERNS)}",
            f"{self._text(alias, depth - 1)} = {self._text(alias, depth - 1)}",
            f"exists (select 1 from {self._table()} {inner} where {self._condition(inner, depth - 1)})",
            f"{alias}.id in (select {inner}.id from {self._table()} {inner} where {self._condition(inner, depth - 1)})",
            f"{alias}.body is {self._choose('', 'not ')}null",
            f"{alias}.id {self._choose('=', '>')} {self._random.choice([1, 2, 501, 601, 602])}",
        )

    def _number(self, alias: str, depth: int, base: str | None = None) -> str:
        base = base or f"{alias}.{self._choose('id', 'n')}"
        if depth <= 0:
            return base
        inner = self._alias()
        return self._choose(
            base,
            f"({self._number(alias, depth - 1)} {self._choose('+', '-', '*', '/', '%')} {self._number(alias, depth - 1)})",
            f"length({self._text(alias, depth - 1)})",
            f"coalesce({self._number(alias, depth - 1)}, 1)",
            f"(select {self._choose('max', 'min', 'count')}({inner}.n) from {self._table()} {inner})",
            f"case when {self._condition(alias, depth - 1)} then {self._number(alias, depth - 1)} else 1 / {alias}.n end",
            f"(({self._text(alias, 0)} || '1')::int)",
        )

    def _text(self, alias: str, depth: int) -> str:
        if depth <= 0:
            return f"{alias}.body"
        return self._choose(
            f"{alias}.body",
            f"lower({self._text(alias, depth - 1)})",
            f"{self._text(alias, depth - 1)} || {self._choose(chr(39) + 'x' + chr(39), self._number(alias, 0))}",
            f"substring({self._text(alias, depth - 1)} from 1 for {self._number(alias, 0)})",
            f"replace({self._text(alias, depth - 1)}, 'm', 'nn')",
            f"coalesce({self._text(alias, depth - 1)}, 'none')",
        )

    def _table(self) -> str:
        return self._random.choice(TABLES)

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"

    def _choose(self, *choices: str) -> str:
        return self._random.choice(choices)


def damage(random: Random, sql: str) -> str:
    """Puts parts of attacks into a statement, or takes words out of it."""
    words = sql.split(" ")
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(words))
        pick = random.random()
        if pick < 0.4:
            words[place:place] = random.choice(REFUSED)[:200].split(" ")[: random.randint(1, 4)]
        elif pick < 0.7:
            words[place] = random.choice(
                ["closed", "*", "or", "1=1", "--", "/*", "*/", ";", "'", '"', ")", "(", "null"]
            )
        elif len(words) > 1:
            del words[place]
    return " ".join(words)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, list[Tables], list[Headers]]]:
    with asyncio.Runner() as runner:
        opening = open_installation(tmp_path_factory.mktemp("sql"), plan="enterprise")
        world = runner.run(opening.__aenter__())
        yield runner, *runner.run(open_apps(world))
        runner.run(opening.__aexit__(None, None, None))


async def open_apps(world: Installation) -> tuple[list[Tables], list[Headers]]:
    apps = [Tables(world, await world.create_app()) for _ in HIDDEN]
    for tables in apps:
        await tables.apply(SCHEMA)
        for table, name, command, fields in POLICIES:
            await tables.policy(table, name, command=command, role="user", **fields)
    await fill(apps)
    return apps, [await tables.user(ADA) for tables in apps]


async def fill(apps: list[Tables]) -> None:
    for tables, hidden_rows in zip(apps, HIDDEN, strict=True):
        for table in SCHEMA:
            await tables.ask("DELETE", f"/{table}?id=gte.0")
            await tables.insert(table, *OPEN[table], *hidden_rows[table])


async def send(tables: Tables, sql: str, by: Headers) -> tuple[str, Any]:
    """Returns what a statement answers: its rows, or its error."""
    try:
        answer = await run(tables, sql, by=by)
    except BaobabError as error:
        if error.status >= 500:
            raise
        # Which of several visible values an error names depends on the order of the rows.
        return error.code, re.sub(r'"[^"]*"', "", error.message)
    return "", (answer["rowCount"], sorted(map(repr, answer["rows"])))


async def check(apps: list[Tables], users: list[Headers], sql: str) -> None:
    outcomes = [await send(tables, sql, by) for tables, by in zip(apps, users, strict=True)]
    # That a key is taken is told by every insert.
    if not any("UNIQUE" in code for code, _ in outcomes):
        assert outcomes[0] == outcomes[1], sql
    has_changed = False
    for tables, hidden_rows in zip(apps, HIDDEN, strict=True):
        for table in SCHEMA:
            rows = {row["id"]: row for row in await tables.list(f"{table}?order=id")}
            for row in [*hidden_rows[table], *([OPEN["notes"][1], OPEN["notes"][2]] if table == "notes" else [])]:
                # Ada's locked note and Ben's rows are not hers to change, and she may not delete the first.
                assert rows.pop(row["id"], None) == row, (sql, row)
            for row in rows.values():
                assert table != "closed", (sql, row)
                if table == "notes":
                    assert row["user_id"] == ADA, (sql, row)
            has_changed |= list(rows.values()) != [each for each in OPEN[table] if each["id"] in rows] or (
                len(rows) != {"notes": 1, "tasks": 2, "closed": 0}[table]
            )
    if has_changed:
        await fill(apps)


def test_no_statement_tells_of_hidden_rows_or_changes_what_is_not_the_users(
    running: tuple[asyncio.Runner, list[Tables], list[Headers]],
) -> None:
    runner, apps, users = running

    @settings(max_examples=150, deadline=None)
    @given(st.integers(0, 2**32), st.booleans())
    def holds_for(seed: int, is_damaged: bool) -> None:
        random = Random(seed)
        sql = Grammar(random).statement()
        if is_damaged:
            sql = damage(random, sql)
        runner.run(check(apps, users, sql or "x"))

    holds_for()
