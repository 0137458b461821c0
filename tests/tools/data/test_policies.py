"""Policies: what they open is reached, and nothing else, by users, visitors and those who look as one of them."""

import contextlib
from typing import Any

import pytest

from baobab.server import Server
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.data.advice.slow_statements import SlowNotes, SlowStatements
from tests.http.installation import Headers, Installation
from tests.tools.data.conftest import ADA, BEN, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
async def posts(tables: Tables) -> Tables:
    await tables.apply({"posts": POSTS})
    await tables.insert(
        "posts",
        {"title": "Ada's", "user_id": ADA, "score": 1},
        {"title": "Ada's public", "user_id": ADA, "public": True, "score": 2},
        {"title": "Ben's", "user_id": BEN, "score": 3},
        {"title": "Nobody's", "score": 4},
    )
    return tables


async def titles(tables: Tables, by: Headers | None, **headers: str) -> list[str]:
    return [row["title"] for row in await tables.list("posts?order=score", by, **headers)]


async def test_a_new_table_is_closed_to_users_and_visitors(posts: Tables) -> None:
    ada = await posts.user(ADA)
    assert await titles(posts, ada) == []
    assert (await posts.ask("POST", "/posts", {"title": "x"}, ada)).json["error"]["code"] == "AUTH_RLS_POLICY_VIOLATION"
    calls: tuple[tuple[str, Any], ...] = (("GET", None), ("POST", {"title": "x"}), ("DELETE", None))
    for method, body in calls:
        answer = await posts.ask(method, "/posts?id=not.is.null" if method == "DELETE" else "/posts", body, {})
        assert (answer.status, answer.json["error"]["code"]) == (401, "AUTH_RLS_REQUIRES_USER_JWT")
    assert len(await posts.list("posts")) == 4


async def test_isolated_users_reach_their_own_rows_and_the_public_ones(posts: Tables) -> None:
    body = {"table_name": "posts", "user_column": "user_id", "public_read_column": "public"}
    answer = await posts.ask("POST", "/rls", body)
    assert answer.json["policy_name"] == "posts_user_isolation"
    assert answer.json["public_read_policies"] == ["posts_public_read_user", "posts_public_read_anon"]
    ada, ben = await posts.user(ADA), await posts.user(BEN)
    assert await titles(posts, ada) == ["Ada's", "Ada's public"]
    assert await titles(posts, ben) == ["Ada's public", "Ben's"]
    assert await titles(posts, {}) == ["Ada's public"]
    created_answer = await posts.ask("POST", "/posts", {"title": "New"}, ben)
    assert (created_answer.status, created_answer.json["user_id"]) == (201, BEN)
    forged_answer = await posts.ask("POST", "/posts", {"title": "Forged", "user_id": ADA}, ben)
    assert (forged_answer.status, forged_answer.json["error"]["code"]) == (403, "AUTH_RLS_POLICY_VIOLATION")
    given_away = await posts.ask("PATCH", f"/posts/{created_answer.json['id']}", {"user_id": ADA}, ben)
    assert given_away.json["error"]["code"] == "AUTH_RLS_POLICY_VIOLATION"
    [public] = await posts.list("posts?title=like.*public", ben)
    assert (await posts.ask("PATCH", f"/posts/{public['id']}", {"title": "Mine"}, ben)).status == 404
    assert (await posts.ask("DELETE", f"/posts/{public['id']}", None, ben)).status == 404
    changed_answer = await posts.ask("PATCH", "/posts?score=gt.0", {"score": 0}, ben)
    assert [row["title"] for row in changed_answer.json] == ["Ben's"]
    assert (await posts.ask("DELETE", "/posts?id=not.is.null", None, ada)).json[0]["user_id"] == ADA
    assert {row["title"] for row in await posts.list("posts")} == {"Ben's", "Nobody's", "New"}


async def test_an_upsert_reaches_no_row_that_an_update_would_not(posts: Tables) -> None:
    await posts.ask("POST", "/rls", {"table_name": "posts", "user_column": "user_id"})
    [of_ada] = await posts.list("posts?title=eq.Ada's")
    ben = await posts.user(BEN)
    answer = await posts.ask("POST", "/posts?on_conflict=id", {"id": of_ada["id"], "title": "Stolen"}, ben)
    assert (answer.status, answer.json["error"]["code"]) == (403, "AUTH_RLS_POLICY_VIOLATION")
    assert await posts.list(f"posts?id=eq.{of_ada['id']}") == [of_ada]


EXPRESSIONS = [
    ("user_id = current_user_id()", ["Ada's", "Ada's public"]),
    ("(select current_user_id())::uuid = user_id", ["Ada's", "Ada's public"]),
    ("user_id::text = auth.uid() and not public", ["Ada's"]),
    ("public", ["Ada's public"]),
    ("public is not true or score in (2, 3)", ["Ada's", "Ada's public", "Ben's", "Nobody's"]),
    ("score between 2 and 3", ["Ada's public", "Ben's"]),
    ("user_id is null", ["Nobody's"]),
    ("user_id is distinct from current_user_id()", ["Ben's", "Nobody's"]),
    ("title like 'Ada%' and lower(title) <> 'ada''s'", ["Ada's public"]),
    ("title ilike '%PUBLIC'", ["Ada's public"]),
    ("length(title) < 6", ["Ada's", "Ben's"]),
    ("coalesce(score, 0) >= 4", ["Nobody's"]),
    ("created_at <= now()", ["Ada's", "Ada's public", "Ben's", "Nobody's"]),
    ("created_at > '2999-01-01'", []),
    ("current_user_role() = 'editor'", []),
    ("exists (select 1 from posts p where p.user_id = posts.user_id and p.public)", ["Ada's", "Ada's public"]),
    ("id in (select id from posts where score = 3)", ["Ben's"]),
    ("false", []),
]


@pytest.mark.parametrize(("expression", "seen_titles"), EXPRESSIONS)
async def test_an_expression_opens_the_rows_for_which_it_is_true(
    posts: Tables, expression: str, seen_titles: list[str]
) -> None:
    if "from posts" in expression:
        # A policy that asks its own table would lead in a circle: it asks another one, which is open.
        await posts.apply({"posts": POSTS, "copies": {"columns": POSTS["columns"]}})
        await posts.insert("copies", *(await posts.list("posts")))
        await posts.policy("copies", "open", using_expression="true")
        expression = expression.replace("from posts", "from copies")
    await posts.policy("posts", "p", command="SELECT", using_expression=expression)
    ada = await posts.user(ADA)
    assert await titles(posts, ada) == seen_titles
    # Each caller reads by its key what it sees in the list, whoever has read before.
    every_row = await posts.list("posts")
    for caller in (ada, await posts.user(BEN), {}, await posts.user(BEN, role="editor"), ada):
        listed_answer = await posts.ask("GET", "/posts", None, caller)
        visible = listed_answer.json if listed_answer.status == 200 else []
        for row in every_row:
            answer = await posts.ask("GET", f"/posts/{row['id']}", None, caller)
            assert answer.status == (
                200 if row in visible else listed_answer.status if listed_answer.status != 200 else 404
            )
            assert answer.status != 200 or answer.json == row


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("pg_sleep(10) is null", "RLS_UNSAFE_EXPRESSION"),
        ("set_config('a', 'b', true) = 'b'", "RLS_UNSAFE_EXPRESSION"),
        ("pg_read_file('/etc/passwd') = ''", "RLS_UNSAFE_EXPRESSION"),
        ("dblink_connect('x') = ''", "RLS_UNSAFE_EXPRESSION"),
        ("exists (select 1 from pg_catalog.pg_user)", "RLS_UNSAFE_EXPRESSION"),
        ("exists (select 1 from sqlite_master)", "RLS_UNSAFE_EXPRESSION"),
        ("exists (select 1 from _catalogue)", "RLS_UNSAFE_EXPRESSION"),
        ("exists (select 1 from posts, posts b)", "RLS_UNSAFE_EXPRESSION"),
        ("exists (select 1 from posts union select 1 from posts)", "RLS_UNSAFE_EXPRESSION"),
        ("exists (with x as (select 1) select * from x)", "RLS_UNSAFE_EXPRESSION"),
        ("id in (select id from posts limit 1)", "RLS_UNSAFE_EXPRESSION"),
        ("current_setting('a') = 'b'", "RLS_UNSAFE_EXPRESSION"),
        ("current_user = 'postgres'", "RLS_UNSAFE_EXPRESSION"),
        ("title ~ '(a+)+$'", "RLS_UNSAFE_EXPRESSION"),
        ("title ~ 'x'", "RLS_UNSAFE_EXPRESSION"),
        ("score / 2 = 1", "RLS_UNSAFE_EXPRESSION"),
        ("nullif(title, 'a') is null", "RLS_UNSAFE_EXPRESSION"),
        ("user_id = title", "RLS_TYPE_MISMATCH"),
        ("title = 5 and score = title", "RLS_TYPE_MISMATCH"),
        ("user_id = 'not a uuid'", "RLS_TYPE_MISMATCH"),
        ("score = 'many'", "RLS_TYPE_MISMATCH"),
        ("title and public", "RLS_TYPE_MISMATCH"),
        ("nothing = 1", "RLS_INVALID_EXPRESSION"),
        ("title", "RLS_INVALID_EXPRESSION"),
        ("true; drop table posts", "RLS_INVALID_EXPRESSION"),
        ("true union select 1", "RLS_INVALID_EXPRESSION"),
        ("true) or (true", "RLS_INVALID_EXPRESSION"),
        ("(" * 200 + "true" + ")" * 200, "RLS_INVALID_EXPRESSION"),
        ("id in (select id from posts where score = 3)", "RLS_INVALID_EXPRESSION"),
    ],
)
async def test_an_expression_outside_the_safe_subset_is_refused(posts: Tables, expression: str, code: str) -> None:
    body = {"table_name": "posts", "policy_name": "p", "command": "SELECT", "using_expression": expression}
    answer = await posts.ask("POST", "/rls/policies", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, code), answer.content
    assert (await posts.ask("GET", "/rls")).json["policies"] == []


async def test_a_policy_tells_how_many_rows_of_today_it_opens(posts: Tables) -> None:
    answer = await posts.policy("posts", "shown", command="SELECT", using_expression="public")
    assert answer["visible_rows"] == {"anonymous": 1, "any_user": 1, "total": 4}
    answer = await posts.policy("posts", "all", using_expression="true")
    assert "any signed-in user may SELECT, INSERT, UPDATE, DELETE any row" in answer["warnings"][1]
    overview = (await posts.ask("GET", "/rls")).json
    assert {row["policyname"]: row["qual"] for row in overview["policies"]} == {"shown": "public", "all": "true"}
    assert overview["tables_with_rls"] == ["posts"]
    assert {finding["caller"] for finding in overview["open_tables"]} == {"anon", "user"}


async def test_permissive_policies_add_up_and_restrictive_ones_narrow(posts: Tables) -> None:
    await posts.policy("posts", "own", using_expression="user_id = current_user_id()", role="user")
    await posts.policy("posts", "shown", command="SELECT", using_expression="public")
    ben = await posts.user(BEN)
    assert await titles(posts, ben) == ["Ada's public", "Ben's"]
    await posts.policy("posts", "few", command="SELECT", using_expression="score > 2", restrictive=True)
    assert await titles(posts, ben) == ["Ben's"]
    answer = await posts.ask("PATCH", "/rls/policies/few", {"table_name": "posts", "using_expression": "score < 3"})
    assert answer.status == 200
    assert await titles(posts, ben) == ["Ada's public"]
    assert (await posts.ask("DELETE", "/rls/posts/few")).json["dropped"] == ["few"]
    assert await titles(posts, ben) == ["Ada's public", "Ben's"]
    assert (await posts.ask("DELETE", "/rls/posts/few")).status == 404


async def test_a_check_holds_for_what_is_written(posts: Tables) -> None:
    await posts.policy("posts", "read", command="SELECT", using_expression="true")
    await posts.policy("posts", "write", command="INSERT", with_check_expression="score > 10")
    ada = await posts.user(ADA)
    assert (await posts.ask("POST", "/posts", {"title": "x", "score": 11}, ada)).status == 201
    both = await posts.ask("POST", "/posts", [{"title": "x", "score": 11}, {"title": "x", "score": 1}], ada)
    assert both.json["error"]["code"] == "AUTH_RLS_POLICY_VIOLATION"
    assert len(await posts.list("posts")) == 5


async def test_row_security_that_is_taken_away_opens_the_table_and_is_reported(posts: Tables) -> None:
    await posts.policy("posts", "own", using_expression="user_id = current_user_id()")
    assert (await posts.ask("DELETE", "/rls/posts")).json["dropped"] == ["own"]
    assert len(await titles(posts, await posts.user(BEN))) == 4
    assert (await posts.ask("GET", "/rls")).json["open_tables"][0]["may"] == ["SELECT", "INSERT", "UPDATE", "DELETE"]
    await posts.ask("POST", "/rls/enable", {"table_name": "posts"})
    assert await titles(posts, await posts.user(BEN)) == []


async def test_those_who_run_the_app_see_it_as_somebody_else(posts: Tables) -> None:
    await posts.ask("POST", "/rls", {"table_name": "posts", "user_column": "user_id", "public_read_column": "public"})
    assert await titles(posts, None, x_platform_as_user=ADA) == ["Ada's", "Ada's public"]
    assert await titles(posts, None, x_platform_as_role="anon") == ["Ada's public"]
    answer = await posts.ask("POST", "/posts", {"title": "As Ben"}, x_platform_as_user=BEN)
    assert answer.json["user_id"] == BEN
    nobody = await posts.ask("GET", "/posts", x_platform_as_role="user")
    assert nobody.status == 400
    user = await posts.ask("GET", "/posts", None, await posts.user(BEN), x_platform_as_user=ADA)
    assert user.status == 403


async def test_policies_hold_for_embedded_rows_and_for_the_tables_that_policies_ask(tables: Tables) -> None:
    teams = {"columns": {"id": {"type": "integer", "primaryKey": True}, "name": "text"}}
    members = {
        "columns": {
            "id": {"type": "serial", "primaryKey": True},
            "team_id": {"type": "integer", "references": "teams.id"},
            "user_id": "uuid",
        }
    }
    await tables.apply({"teams": teams, "members": members})
    await tables.insert("teams", {"id": 1, "name": "red"}, {"id": 2, "name": "blue"})
    await tables.insert(
        "members", {"team_id": 1, "user_id": ADA}, {"team_id": 2, "user_id": BEN}, {"team_id": 1, "user_id": BEN}
    )
    mine = "exists (select 1 from members m where m.team_id = teams.id and m.user_id = current_user_id())"
    await tables.policy("teams", "mine", using_expression=mine)
    ada = await tables.user(ADA)
    assert await tables.list("teams", ada) == []
    await tables.policy("members", "own", using_expression="user_id = current_user_id()")
    assert await tables.list("teams?select=name,members(user_id)", ada) == [
        {"name": "red", "members": [{"user_id": ADA}]}
    ]


async def test_a_column_that_a_policy_asks_for_is_not_dropped(posts: Tables) -> None:
    await posts.policy("posts", "own", using_expression="user_id = current_user_id()")
    columns = {name: column for name, column in POSTS["columns"].items() if name != "user_id"}
    document = {"tables": {"posts": {"columns": columns, "_dropColumns": ["user_id"]}}}
    refusal = await posts.ask("POST", "/schema/apply", {"schema": document})
    assert (refusal.status, refusal.json["error"]["code"]) == (400, "RLS_INVALID_EXPRESSION")
    assert "`own`" in refusal.json["error"]["message"]


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_only_those_who_run_the_app_learn_the_names_of_its_tables(posts: Tables, method: str) -> None:
    path = "/nosuch" if method == "POST" else "/nosuch?id=eq.1"
    body = {"title": "a"} if method in ("POST", "PATCH") else None
    for headers in ({}, await posts.user(ADA)):
        answer = await posts.ask(method, path, body, headers)
        assert (answer.status, "posts" in str(answer.json)) == (404, False)
    answer = await posts.ask(method, path, body)
    assert answer.json["error"]["details"]["tables"] == ["posts"]


async def test_visitors_are_turned_away_where_the_app_asks_for_sign_in(posts: Tables) -> None:
    await posts.policy("posts", "all", command="SELECT", using_expression="true")
    assert len(await titles(posts, {})) == 4
    answer = await posts.ask(
        "POST",
        "/secure",
        {"tables": [{"table_name": "posts", "user_column": "user_id"}, {"table_name": "nope", "user_column": "x"}]},
    )
    assert answer.json["tables_secured"] == [{"table": "posts", "policy": "posts_user_isolation"}]
    assert [error["table"] for error in answer.json["table_errors"]] == ["nope"]
    assert (await posts.ask("GET", "/posts", None, {})).status == 401
    assert len(await titles(posts, await posts.user(ADA))) == 4


async def test_users_and_keys_of_another_app_reach_nothing(posts: Tables) -> None:
    other = await posts.world.create_app()
    foreign = await posts.world.user_headers(other, ADA)
    assert (await posts.ask("GET", "/posts", None, foreign)).status == 401
    key = await posts.world.create_key(posts.world.owner, key_scope="app", target_app_id=other.id)
    assert (await posts.ask("GET", "/posts", None, key)).status == 403
    assert (await posts.ask("GET", "/posts", None, {"apikey": other.anon_key})).status == 403


async def test_a_check_that_asks_for_null_sees_the_row_that_is_written(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.policy("posts", "draft", role="anon", using_expression="user_id is null")
    await tables.policy(
        "posts", "named", role="user", using_expression="true", with_check_expression="score is not null"
    )
    assert (await tables.ask("POST", "/posts", {"title": "a"}, {})).status == 201
    assert (await tables.ask("POST", "/posts", {"title": "a", "user_id": ADA}, {})).status == 403
    ada = await tables.user(ADA)
    assert (await tables.ask("POST", "/posts", {"title": "b", "score": 1}, ada)).status == 201
    assert (await tables.ask("POST", "/posts", {"title": "b"}, ada)).status == 403
    assert (await tables.ask("PATCH", "/posts?title=eq.b", {"score": None}, ada)).status == 403


ODD = {"columns": {"n": {"type": "bigint"}, "pattern": {"type": "text"}}}


@pytest.mark.parametrize(
    ("expression", "expected_patterns"),
    [
        ("abs(n) <= 5", ["a%"]),
        ("abs(n) > 9223372036854775807", ["a\\"]),
        ("'ab' like pattern", ["a%"]),
        ("'AB' ilike pattern", ["a%"]),
        ("pattern like pattern", ["a%"]),
        ("not ('ab' like pattern)", ["a\\"]),
    ],
)
async def test_no_row_can_be_written_that_a_policy_fails_for(
    tables: Tables, expression: str, expected_patterns: list[str]
) -> None:
    """The least integer has no positive one, and a pattern may end within an escape."""
    await tables.apply({"odd": ODD})
    await tables.insert("odd", {"n": -(2**63), "pattern": "a\\"}, {"n": -5, "pattern": "a%"})
    await tables.policy("odd", "some", using_expression=expression, command="SELECT")
    assert [row["pattern"] for row in await tables.list("odd", await tables.user(ADA))] == expected_patterns


async def test_a_pattern_of_a_policy_does_not_end_within_an_escape(posts: Tables) -> None:
    body = {"table_name": "posts", "policy_name": "p", "using_expression": "title like 'a\\'"}
    answer = await posts.ask("POST", "/rls/policies", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "RLS_INVALID_EXPRESSION"), answer.content


async def test_columns_that_policies_and_references_look_up_without_an_index_are_named(tables: Tables) -> None:
    key = {"type": "integer", "primaryKey": True}
    teams = {"columns": {"id": key, "owner": {"type": "text"}}}
    members = {"columns": {"id": key, "team_id": {"type": "integer", "references": "teams.id"}, "user_id": "uuid"}}
    posts = {
        "columns": {"id": key, "user_id": "uuid", "kind": "text"},
        "indexes": {"by_user": {"columns": ["user_id"]}},
    }
    await tables.apply({"teams": teams, "members": members, "posts": posts})
    text = "exists (select 1 from members m where m.team_id = teams.id and m.user_id = current_user_id())"
    await tables.policy("teams", "members", using_expression=f"{text} or owner = current_user_id()")
    await tables.policy("posts", "own", using_expression="user_id = current_user_id() and kind = 'a'")

    async def list_missing() -> set[str]:
        missing_indexes = (await tables.ask("GET", "/rls")).json["missing_indexes"]
        return {f"{each['table']}.{each['column']}" for each in missing_indexes}

    assert await list_missing() == {"members.team_id", "members.user_id", "teams.owner"}
    teams["columns"]["owner"] = {"type": "text", "unique": True}
    indexes = {"one": {"columns": ["user_id", "team_id"]}, "two": {"columns": ["team_id"]}}
    await tables.apply({"teams": teams, "members": {**members, "indexes": indexes}, "posts": posts})
    assert await list_missing() == set()


async def test_a_policy_that_only_checks_what_is_inserted_opens_the_insert_to_visitors(posts: Tables) -> None:
    how = {"command": "INSERT", "role": "anon", "with_check_expression": "user_id is null"}
    [warning] = (await posts.policy("posts", "guest_book", **how))["warnings"]
    assert warning.startswith("`posts`: anyone without signing in may INSERT rows that `guest_book` lets pass")
    narrow_policy = await posts.policy("posts", "narrow", **{**how, "role": "user"})
    assert "warnings" not in narrow_policy
    await posts.ask("DELETE", "/rls/posts/narrow")
    assert (await posts.ask("POST", "/posts", {"title": "I was here"}, {})).status == 201
    assert (await posts.ask("POST", "/posts", {"title": "As Ada", "user_id": ADA}, {})).status == 403
    assert (await posts.ask("GET", "/posts", by={})).status == 401


async def test_a_table_into_which_visitors_may_insert_anything_is_named(posts: Tables) -> None:
    answer = await posts.policy("posts", "all", command="INSERT", role="anon", with_check_expression="true")
    assert answer["warnings"] == ["`posts`: anyone without signing in may INSERT any row."]


async def test_statements_that_took_long_are_named_with_their_columns_and_without_values(tables: Tables) -> None:
    options = tables.world.application.services.options
    before = options.slow_seconds
    await tables.apply({"posts": POSTS})
    await tables.insert("posts", {"title": "a secret"})
    assert (await tables.ask("GET", "/rls")).json["slow_statements"] == []
    object.__setattr__(options, "slow_seconds", 0.0)
    try:
        for _ in range(2):
            await tables.list("posts?or=(title.eq.secret,score.gt.5)&order=score.desc", prefer="count=exact")
        await tables.ask("PATCH", "/posts?user_id=is.null", {"title": "b secret"})
        await tables.ask("DELETE", "/posts?title=eq.secret")
        # Those that were slow longest ago make room.
        columns = [name for name in POSTS["columns"] if name != "id"]
        for number in range(60):
            chosen_columns = [name for place, name in enumerate(columns) if number >> place & 1]
            filters = "".join(f",{name}.not.is.null" for name in chosen_columns)
            await tables.list(f"posts?select=id&and=(id.not.is.null{filters})&order={'id' if number < 32 else 'title'}")
    finally:
        object.__setattr__(options, "slow_seconds", before)
    slow_statements = (await tables.ask("GET", "/rls")).json["slow_statements"]
    assert len(slow_statements) == 50
    assert "secret" not in str(slow_statements)


async def test_a_slow_statement_says_which_index_it_lacks(tables: Tables) -> None:
    options = tables.world.application.services.options
    before = options.slow_seconds
    await tables.apply({"posts": POSTS})
    object.__setattr__(options, "slow_seconds", 0.0)
    try:
        for _ in range(2):
            await tables.list("posts?score=gt.5&title=eq.x&order=score.desc")
        await tables.ask("DELETE", f"/posts?user_id=eq.{ADA}")
    finally:
        object.__setattr__(options, "slow_seconds", before)
    slow_statements = {each["operation"]: each for each in (await tables.ask("GET", "/rls")).json["slow_statements"]}
    select = slow_statements["select"]
    assert (select["filters"], select["order"], select["calls"]) == (["score", "title"], ["score"], 2)
    assert "No index begins with `score` or `title`." in select["message"]
    assert "No index" not in slow_statements["delete"]["message"]


async def test_a_slow_read_is_answered_before_it_is_noted_and_also_where_it_cannot_be(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def fail(*_: Any) -> None:
        attempts.append("keep")
        raise DatabaseUnavailable("busy")

    options = tables.world.application.services.options
    before = options.slow_seconds
    await tables.apply({"posts": POSTS})
    monkeypatch.setattr(SlowStatements, "keep", fail)
    object.__setattr__(options, "slow_seconds", 0.0)
    try:
        assert await tables.list("posts?score=gt.5") == []
    finally:
        object.__setattr__(options, "slow_seconds", before)
    # The round of every second may have been there before.
    with contextlib.suppress(DatabaseUnavailable):
        await tables.world.application.services.of(SlowNotes).flush_app(tables.app.id)
    assert attempts


@pytest.mark.parametrize(
    "text",
    [
        "title is not null",
        "id = id",
        "1 = 1 or user_id is null",
        "user_id is null or user_id is not null",
        "score >= 0",
    ],
)
async def test_a_policy_that_opens_every_row_is_called_open_whatever_its_text(tables: Tables, text: str) -> None:
    await tables.apply({"posts": POSTS})
    await tables.insert("posts", {"title": "one", "score": 1}, {"title": "two", "score": 2})
    policy = {"table_name": "posts", "policy_name": "some", "command": "SELECT", "using_expression": text}
    answer = (await tables.ask("POST", "/rls/policies", policy)).json
    assert answer["visible_rows"] == {"anonymous": 2, "any_user": 2, "total": 2}
    assert len(answer["warnings"]) == 2
    findings = (await tables.ask("GET", "/rls")).json["open_tables"]
    assert [(finding["table"], finding["caller"]) for finding in findings] == [("posts", "anon"), ("posts", "user")]
    public = (await tables.ask("PATCH", "/config/access-mode", {"access_mode": "public"})).json
    assert any("`posts`: anyone without signing in" in warning for warning in public["warnings"])


async def test_a_policy_that_leaves_a_row_out_is_not_called_open(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.insert("posts", {"title": "one", "public": True}, {"title": "two"})
    policy = {"table_name": "posts", "policy_name": "some", "command": "SELECT", "using_expression": "public"}
    answer = (await tables.ask("POST", "/rls/policies", policy)).json
    assert "warnings" not in answer
    assert (await tables.ask("GET", "/rls")).json["open_tables"] == []


async def test_open_tables_are_named_where_an_app_is_made_public(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    public = {"visibility": "public"}
    assert "warnings" not in (await tables.ask("PATCH", "/config/visibility", public)).json
    assert (await tables.ask("GET", "/config")).json["open_tables"] == []
    await tables.policy("posts", "all", command="SELECT", role="anon", using_expression="true")
    warnings = ["`posts`: anyone without signing in may SELECT any row."]
    assert (await tables.ask("PATCH", "/config/visibility", public)).json["warnings"] == warnings
    assert (await tables.ask("PATCH", "/config/access-mode", {"access_mode": "public"})).json["warnings"] == warnings
    assert "warnings" not in (await tables.ask("PATCH", "/config/access-mode", {"access_mode": "authenticated"})).json
    assert (await tables.ask("GET", "/config")).json["open_tables"] == warnings


async def test_settings_name_open_tables_as_another_worker_has_just_opened_and_closed_them(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    database = tables.world.application.services.stores_of("local").data
    # The other worker has the same database and a memory of its own.
    server = Server(tables.world.application.settings)
    async with server.open() as application:
        other = Tables(Installation(server, application), tables.app)
        assert (await tables.ask("GET", "/config")).json["open_tables"] == []
        await other.policy("posts", "all", command="SELECT", role="anon", using_expression="true")
        await tables.world.application.services.notices.poll()
        reads: list[str] = []
        original = database.read

        async def read(app_id: str, *arguments: Any, **options: Any) -> Any:
            reads.append(app_id)
            return await original(app_id, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "read", read)
            for _ in range(3):
                open_tables = (await tables.ask("GET", "/config")).json["open_tables"]
                assert open_tables == ["`posts`: anyone without signing in may SELECT any row."]
        # The catalogue was read anew once, and is in memory since.
        assert len(reads) <= 2
        await other.ask("DELETE", "/rls/posts/all")
        await tables.world.application.services.notices.poll()
        assert (await tables.ask("GET", "/config")).json["open_tables"] == []


MEMBERS: dict[str, Any] = {
    "columns": {
        "id": {"type": "integer", "primaryKey": True},
        "org_id": {"type": "integer"},
        "user_id": {"type": "uuid"},
        "role": {"type": "text"},
        "label": {"type": "text", "generated": "upper(role)"},
    }
}
OWNED = (
    "exists (select 1 from members me where me.org_id = members.org_id and me.user_id = current_user_id()"
    " and me.role = 'owner')"
)
"""A policy that asks its own table: whether the caller owns the organisation of the row."""


async def write_members(tables: Tables, way: str, user_id: str, *rows: dict[str, Any]) -> int:
    """Writes rows of members as a user, in one of the ways that there are, and returns the status."""
    acting: dict[str, Any] = {"x_platform_as_user": user_id}
    if way == "batch":
        body = {"writes": [{"op": "insert", "table": "members", "values": row} for row in rows]}
        return (await tables.ask("POST", "/data-batch", body, **acting)).status
    if way == "import":
        header = ",".join(rows[0])
        lines = [",".join(str(value) for value in row.values()) for row in rows]
        answer = await tables.world.ask(
            "POST",
            f"{tables.base}/data-import/members",
            {**tables.world.owner, "x-platform-as-user": user_id},
            content="\n".join([header, *lines, ""]).encode(),
        )
        if answer.status == 400:
            # An import says which line stopped it.
            assert "do not allow this row" in str(answer.json), answer.content
        return 403 if answer.status == 400 else answer.status
    if way == "upsert":
        return (await tables.ask("POST", "/members?on_conflict=id", list(rows), **acting)).status
    if way == "ignore":
        acting["prefer"] = "resolution=ignore-duplicates"
        return (await tables.ask("POST", "/members?on_conflict=id", list(rows), **acting)).status
    return (await tables.ask("POST", "/members", rows[0] if way == "one" else list(rows), **acting)).status


@pytest.mark.parametrize("way", ["one", "list", "upsert", "ignore", "batch", "import"])
async def test_a_row_does_not_fulfil_the_policy_that_it_is_checked_by(tables: Tables, way: str) -> None:
    await tables.apply({"members": MEMBERS})
    await tables.insert("members", {"id": 1, "org_id": 1, "user_id": ADA, "role": "owner"})
    await tables.policy("members", "own", command="SELECT", using_expression="user_id = current_user_id()")
    await tables.policy("members", "add", command="INSERT", with_check_expression=OWNED)
    await tables.policy("members", "change", command="UPDATE", using_expression=OWNED)
    before = await tables.list("members")
    # Ben makes himself the owner of somebody's organisation, and of one that does not exist yet.
    for org_id in (1, 2):
        row = {"id": 10 + org_id, "org_id": org_id, "user_id": BEN, "role": "owner"}
        assert await write_members(tables, way, BEN, row) == 403
    assert await tables.list("members") == before
    # Ada, who owns the first one, adds him there, and herself nowhere else.
    assert await write_members(tables, way, ADA, {"id": 20, "org_id": 1, "user_id": BEN, "role": "owner"}) in (200, 201)
    assert await write_members(tables, way, ADA, {"id": 21, "org_id": 2, "user_id": ADA, "role": "owner"}) == 403
    [added_row] = await tables.list("members?id=eq.20")
    assert added_row["label"] == "OWNER"
    assert await write_members(tables, way, BEN, {"id": 22, "org_id": 1, "user_id": ADA, "role": "guest"}) in (200, 201)
    assert len(await tables.list("members")) == 3


@pytest.mark.parametrize("size", [2, 300])
@pytest.mark.parametrize("way", ["list", "upsert", "batch"])
async def test_no_row_of_a_list_opens_the_way_for_the_next_ones(tables: Tables, way: str, size: int) -> None:
    await tables.apply({"members": MEMBERS})
    await tables.policy("members", "own", command="SELECT", using_expression="user_id = current_user_id()")
    await tables.policy("members", "add", command="INSERT", with_check_expression=f"role = 'guest' or {OWNED}")
    await tables.policy("members", "change", command="UPDATE", using_expression="user_id = current_user_id()")
    size = min(size, 100) if way == "batch" else size
    rows = [{"id": number, "org_id": 1, "user_id": BEN, "role": "owner"} for number in range(size)]
    assert await write_members(tables, way, BEN, *rows) == 403
    rows[0]["role"] = "guest"
    assert await write_members(tables, way, BEN, *rows) == 403
    assert await tables.list("members") == []
    assert await write_members(tables, way, BEN, *({**row, "role": "guest"} for row in rows)) in (200, 201)


@pytest.mark.parametrize("way", ["filter", "key", "batch", "upsert"])
async def test_an_update_is_checked_against_the_row_as_it_was(tables: Tables, way: str) -> None:
    """The usual "you may edit your profile, and not your role"."""
    profiles = {"columns": {"id": {"type": "uuid", "primaryKey": True}, "role": "text", "name": "text"}}
    await tables.apply({"profiles": profiles})
    await tables.insert("profiles", {"id": BEN, "role": "user", "name": "b"}, {"id": ADA, "role": "admin", "name": "a"})
    same = (
        "id = current_user_id() and exists"
        " (select 1 from profiles p where p.id = profiles.id and p.role = profiles.role)"
    )
    await tables.policy("profiles", "all", command="SELECT", using_expression="true")
    await tables.policy("profiles", "add", command="INSERT", with_check_expression="id = current_user_id()")
    mine = {"using_expression": "id = current_user_id()", "with_check_expression": same}
    await tables.policy("profiles", "edit", command="UPDATE", **mine)
    ben = await tables.user(BEN)

    async def change(changes: dict[str, Any]) -> int:
        if way == "batch":
            write = {"op": "update", "table": "profiles", "where": {"id": f"eq.{BEN}"}, "changes": changes}
            return (await tables.ask("POST", "/data-batch", {"writes": [write]}, ben)).status
        if way == "upsert":
            return (await tables.ask("POST", "/profiles?on_conflict=id", {"id": BEN, **changes}, ben)).status
        path = f"/profiles?id=eq.{BEN}" if way == "filter" else f"/profiles/{BEN}"
        return (await tables.ask("PATCH", path, changes, ben)).status

    assert await change({"role": "admin"}) == 403
    assert await change({"name": "Ben", "role": "admin"}) == 403
    assert await change({"name": "Ben", "role": "user"}) in (200, 201)
    assert await tables.list(f"profiles?id=eq.{BEN}") == [{"id": BEN, "role": "user", "name": "Ben"}]


async def test_an_upsert_may_change_what_its_caller_could_change_before_it(tables: Tables) -> None:
    await tables.apply({"members": MEMBERS})
    await tables.insert("members", {"id": 1, "org_id": 1, "user_id": ADA, "role": "guest"})
    await tables.policy("members", "all", command="SELECT", using_expression="true")
    await tables.policy("members", "add", command="INSERT", with_check_expression="true")
    await tables.policy("members", "change", command="UPDATE", using_expression=OWNED, with_check_expression="true")
    rows = [
        {"id": 2, "org_id": 1, "user_id": BEN, "role": "owner"},
        {"id": 1, "org_id": 1, "user_id": ADA, "role": "thrown out"},
    ]
    assert await write_members(tables, "upsert", BEN, *rows) == 403
    assert [row["role"] for row in await tables.list("members")] == ["guest"]
    assert await write_members(tables, "list", BEN, rows[0]) == 201
    assert await write_members(tables, "upsert", BEN, *rows) in (200, 201)


async def test_a_check_does_not_see_the_references_that_its_write_changes(tables: Tables) -> None:
    teams = {"columns": {"id": {"type": "integer", "primaryKey": True}, "boss": "uuid"}}
    team_id = {"type": "integer", "references": {"table": "teams", "column": "id", "onUpdate": "CASCADE"}}
    seats = {"columns": {"id": {"type": "integer", "primaryKey": True}, "team_id": team_id}}
    await tables.apply({"teams": teams, "seats": seats})
    await tables.insert("teams", {"id": 1, "boss": BEN})
    await tables.insert("seats", {"id": 1, "team_id": 1})
    team_has_seats = "exists (select 1 from seats s where s.team_id = teams.id)"
    await tables.policy("seats", "all", command="SELECT", using_expression="true")
    await tables.policy("teams", "all", command="SELECT", using_expression="true")
    await tables.policy(
        "teams", "edit", command="UPDATE", using_expression="true", with_check_expression=team_has_seats
    )
    ben = await tables.user(BEN)
    assert (await tables.ask("PATCH", "/teams/1", {"id": 2}, ben)).status == 403
    assert (await tables.ask("PATCH", "/teams/1", {"boss": ADA}, ben)).status == 200
    assert await tables.list("seats") == [{"id": 1, "team_id": 1}]


async def test_an_insert_answers_its_row_also_to_whoever_may_not_read_it(posts: Tables) -> None:
    await posts.policy("posts", "guest_book", role="anon", command="INSERT", with_check_expression="user_id is null")
    hello = {"title": "Hello?"}
    answer = await posts.ask("POST", "/posts", hello, {})
    assert (answer.status, answer.json["title"], answer.json["public"]) == (201, "Hello?", False)
    for prefer, rows in (("return=representation", [hello]), ("return=minimal", None)):
        answer = await posts.ask("POST", "/posts?select=title", hello, {}, prefer=prefer)
        assert (answer.status, answer.json) == (201, rows)
    # Related rows are read as any read does, which finds nothing here.
    answer = await posts.ask("POST", "/posts?select=renamed:title", [hello], {})
    assert (answer.status, answer.json) == (201, [])
    assert (await posts.ask("GET", "/posts", None, {})).status == 401
    assert len(await posts.list("posts?title=eq.Hello?")) == 4
