"""Policies of teams: members see their colleagues, admins manage members, and what else is known of the caller."""

from typing import Any

import pytest

from tests.http.installation import Headers
from tests.tools.data.conftest import ADA, BEN, Tables
from tests.users import verify_user

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAROL = "33333333-3333-4333-8333-333333333333"
DAN = "44444444-4444-4444-8444-444444444444"
EVE = "55555555-5555-4555-8555-555555555555"
KEY = {"type": "integer", "primaryKey": True}
SCHEMA: dict[str, Any] = {
    "orgs": {"columns": {"id": KEY, "name": "text", "plan": "text"}},
    "members": {
        "columns": {
            "id": {"type": "serial", "primaryKey": True},
            "org_id": {"type": "integer", "references": "orgs.id"},
            "user_id": {"type": "uuid", "nullable": False},
            "role": "text",
        },
        "indexes": {"by_user": {"columns": ["user_id"]}},
    },
    "docs": {
        "columns": {
            "id": KEY,
            "org_id": "integer",
            "title": "text",
            "readers": "text[]",
            "owners": "uuid[]",
            "price": "numeric",
            "email": "text",
            "at": "timestamptz",
        }
    },
}
COLLEAGUES = [
    "org_id in (current_user_values('members', 'user_id', 'org_id'))",
    "org_id = any (current_user_values('members', 'user_id', 'org_id'))",
    "org_id in (select current_user_values('members', 'user_id', 'org_id'))",
    "org_id in (select org_id from current_user_rows('members', 'user_id'))",
    "org_id in (select me.org_id from current_user_rows(members, user_id) me where me.role is not null)",
    "exists (select 1 from current_user_rows('members', 'user_id') me where me.org_id = members.org_id)",
    "org_id in (select o.id from current_user_rows('members', 'user_id') me join orgs o on o.id = me.org_id)",
]
ADMINS = (
    "exists (select 1 from current_user_rows('members', 'user_id') me "
    "where me.org_id = members.org_id and me.role = 'admin')"
)


@pytest.fixture
async def teams(tables: Tables) -> Tables:
    """Ada leads the first organisation, of which Ben is a member. Carol is in the second one, Dan in none."""
    await tables.apply(SCHEMA)
    await tables.insert("orgs", {"id": 1, "name": "red", "plan": "pro"}, {"id": 2, "name": "blue", "plan": "free"})
    await tables.insert(
        "members",
        {"org_id": 1, "user_id": ADA, "role": "admin"},
        {"org_id": 1, "user_id": BEN, "role": "member"},
        {"org_id": 2, "user_id": CAROL, "role": "member"},
    )
    await tables.policy("orgs", "all", command="SELECT", using_expression="true")
    return tables


async def see_members(tables: Tables, by: Headers) -> list[str]:
    return [row["user_id"] for row in await tables.list("members?order=user_id", by)]


@pytest.mark.parametrize("expression", COLLEAGUES)
async def test_members_see_their_colleagues(teams: Tables, expression: str) -> None:
    answer = await teams.policy("members", "colleagues", command="SELECT", role="user", using_expression=expression)
    assert answer["visible_rows"] == {"anonymous": 0, "any_user": 0, "total": 3}
    assert await see_members(teams, await teams.user(ADA)) == [ADA, BEN]
    assert await see_members(teams, await teams.user(BEN)) == [ADA, BEN]
    assert await see_members(teams, await teams.user(CAROL)) == [CAROL]
    assert await see_members(teams, await teams.user(DAN)) == []
    assert (await teams.ask("GET", "/members/1", None, await teams.user(BEN))).json["user_id"] == ADA
    assert (await teams.ask("GET", "/members/1", None, await teams.user(CAROL))).status == 404
    assert (await teams.ask("GET", "/members", None, {})).status == 401
    body = {"table": "members", "viewers": ["anon", ADA, CAROL]}
    simulation = (await teams.ask("POST", "/rls/simulate", body)).json
    assert [each["visible"] for each in simulation["viewers"]] == [0, 2, 1]


async def test_admins_manage_members_and_nobody_makes_themselves_one(teams: Tables) -> None:
    await teams.policy("members", "colleagues", command="SELECT", role="user", using_expression=COLLEAGUES[0])
    for command in ("INSERT", "UPDATE", "DELETE"):
        field = "with_check_expression" if command == "INSERT" else "using_expression"
        await teams.policy("members", f"admins_{command.lower()}", command=command, role="user", **{field: ADMINS})
    ada, ben, carol, dan = [await teams.user(each) for each in (ADA, BEN, CAROL, DAN)]
    for by in (ben, carol, dan):
        for org, user in ((1, DAN), (2, EVE), (1, BEN), (3, CAROL)):
            row = {"org_id": org, "user_id": user, "role": "admin"}
            assert (await teams.ask("POST", "/members", row, by)).status in (400, 403)
            assert (await teams.ask("POST", "/members", [row, {**row, "user_id": BEN}], by)).status in (400, 403)
    assert (await teams.ask("PATCH", "/members/2", {"role": "admin"}, ben)).status == 404
    assert (await teams.ask("DELETE", "/members/1", None, ben)).status == 404
    new_member = await teams.ask("POST", "/members", {"org_id": 1, "user_id": DAN, "role": "member"}, ada)
    assert new_member.status == 201
    assert (await teams.ask("POST", "/members", {"org_id": 2, "user_id": DAN, "role": "member"}, ada)).status == 403
    assert await see_members(teams, dan) == [ADA, BEN, DAN]
    assert (await teams.ask("PATCH", f"/members/{new_member.json['id']}", {"org_id": 2}, ada)).status == 403
    assert (await teams.ask("PATCH", "/members/2", {"role": "admin"}, ada)).status == 200
    assert (await teams.ask("DELETE", "/members/1", None, ben)).status == 200
    assert await see_members(teams, ada) == []


async def test_own_rows_are_found_though_no_policy_shows_them(teams: Tables) -> None:
    await teams.insert("docs", {"id": 1, "org_id": 1}, {"id": 2, "org_id": 2})
    text = "org_id in (current_user_values('members', 'user_id', 'org_id'))"
    await teams.policy("docs", "of_my_org", using_expression=text)
    ada, carol = await teams.user(ADA), await teams.user(CAROL)
    assert await teams.list("members", ada) == []
    assert [row["id"] for row in await teams.list("docs", ada)] == [1]
    assert [row["id"] for row in await teams.list("docs?select=id&org_id=gt.0", carol)] == [2]
    assert (await teams.ask("POST", "/docs", {"id": 3, "org_id": 2}, ada)).status == 403
    assert (await teams.ask("POST", "/docs?on_conflict=id", {"id": 1, "org_id": 1, "title": "x"}, ada)).status == 201
    assert (await teams.ask("POST", "/docs?on_conflict=id", {"id": 2, "org_id": 1, "title": "x"}, ada)).status == 403
    # A column that a policy looks up is not dropped, and one more does no harm.
    members = {**SCHEMA["members"], "columns": {**SCHEMA["members"]["columns"], "note": "text"}}
    await teams.apply({**SCHEMA, "members": members})
    assert [row["id"] for row in await teams.list("docs", ada)] == [1]
    await teams.ask("DELETE", "/rls/docs/of_my_org")
    assert await teams.list("docs", ada) == []


async def test_policies_that_lead_in_a_circle_are_refused_with_the_way_out(teams: Tables) -> None:
    for text in (
        "org_id in (select m.org_id from members m where m.user_id = auth.uid())",
        "exists (select 1 from members m where m.org_id = members.org_id and m.user_id = current_user_id())",
    ):
        for role in ("user", "anon"):
            body = {"table_name": "members", "policy_name": "c", "role": role, "using_expression": text}
            answer = await teams.ask("POST", "/rls/policies", body)
            error = answer.json["error"]
            assert (answer.status, error["code"]) == (400, "RLS_INVALID_EXPRESSION")
            assert "in a circle" in error["message"]
            assert "current_user_rows('members', 'user_id')" in error["remediation"]
            assert "current_user_values('members', 'user_id', 'org_id')" in error["remediation"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("org_id in (current_user_values('members', 'user_id'))", "the table, the column that has the caller's id"),
        ("org_id in (current_user_values('nothing', 'user_id', 'id'))", "is not a table of this app"),
        ("org_id in (current_user_values('members', 'nobody', 'id'))", "has no column `nobody`"),
        ("org_id in (current_user_values('members', 'org_id', 'user_id'))", "the id of a user a uuid or a text"),
        ("title in (current_user_values('members', 'user_id', 'org_id'))", "compares text with number"),
        ("org_id in (select user_id from current_user_rows('members', 'user_id'))", "compares number with uuid"),
        ("exists (select 1 from current_user_rows('members', 'user_id') a join orgs a on true)", "names two tables"),
        ("exists (select 1 from orgs, members)", "joined by"),
    ],
)
async def test_a_lookup_that_cannot_be_meant_is_refused(teams: Tables, expression: str, message: str) -> None:
    body = {"table_name": "docs", "policy_name": "p", "using_expression": expression}
    answer = await teams.ask("POST", "/rls/policies", body)
    assert answer.status == 400
    assert message in answer.json["error"]["message"]


async def test_views_do_not_look_up_rows_that_policies_hide(teams: Tables) -> None:
    text = "select id from docs where org_id in (current_user_values('members', 'user_id', 'org_id'))"
    answer = await teams.ask("POST", "/schema/apply", {"schema": {"tables": SCHEMA, "views": {"mine": text}}})
    assert (answer.status, answer.json["error"]["code"]) == (400, "VALIDATION_INVALID_SCHEMA")
    assert "belong in policies" in answer.json["error"]["message"]


FORMS = [
    ("auth.uid()::text = any(readers)", {ADA: [1], BEN: [2]}),
    ("auth.uid() = any(owners)", {ADA: [2], BEN: []}),
    ("not (current_user_id() = any(readers))", {ADA: [2, 4], BEN: [1, 4]}),
    ("title = any(array['a', 'b'])", {ADA: [1, 2]}),
    ("title = any('{a,c}')", {ADA: [1, 3]}),
    ("title <> all(array['a', 'b'])", {ADA: [3, 4]}),
    ("id = any(array(select m.org_id from members m where m.user_id = auth.uid()))", {ADA: [1], CAROL: [2]}),
    ("id in (select m.org_id from members m join orgs o on o.id = m.org_id where o.plan = 'pro')", {ADA: [1]}),
    ("exists (select 1 from members m left join orgs o on o.id = m.org_id where m.org_id = docs.id)", {BEN: [1, 2]}),
    ("(select plan from orgs where orgs.id = docs.org_id) = 'pro'", {ADA: [1, 2]}),
    ("org_id = (select id from orgs where name = 'blue')", {ADA: [3]}),
    ("org_id = (select id from orgs)", {ADA: []}),
    ("(select d.price from docs_copy d where d.id = docs.id) > 9", {ADA: [2]}),
    ("(select count(*) from members m where m.org_id = docs.org_id) = 2", {ADA: [1, 2], CAROL: [1, 2]}),
    ("case when title = 'a' then true when title = 'b' then current_user_id() is null else false end", {ADA: [1]}),
    ("case org_id when 1 then price else 100 end > 50", {ADA: [3, 4]}),
    ("case when id > 2 then null else title end is null", {ADA: [3, 4]}),
    ("at > now() - interval '1 hour'", {ADA: [1]}),
    ("at < now() - interval '2 days' + interval '1 day'", {ADA: [2, 3]}),
    ("at between now() - interval '1 week' and now() + interval '1 week'", {ADA: [1]}),
    ("auth.role() = 'authenticated' and id = 1", {ADA: [1]}),
    ("(select auth.role()) = 'authenticated' and id = 1", {ADA: [1]}),
    ("auth.role() in ('authenticated', 'anon')", {ADA: [1, 2, 3, 4]}),
    ("auth.role() <> 'anon'", {ADA: [1, 2, 3, 4]}),
    ("auth.role() = 'anon'", {ADA: []}),
    ("auth.jwt() ->> 'sub' = any(readers)", {ADA: [1], BEN: [2]}),
    ("auth.jwt() ->> 'role' = 'authenticated' and id = 2", {BEN: [2]}),
]


@pytest.mark.parametrize(("expression", "ids_by_user"), FORMS)
async def test_a_form_of_sql_means_the_same_in_a_policy(
    teams: Tables, expression: str, ids_by_user: dict[str, list[int]]
) -> None:
    now = teams.world.application.services.clock.now().isoformat()
    await teams.policy("members", "all", command="SELECT", using_expression="true")
    await teams.apply({**SCHEMA, "docs_copy": SCHEMA["docs"]})
    rows: list[dict[str, Any]] = [
        {"id": 1, "org_id": 1, "title": "a", "readers": [ADA, "x"], "price": "9", "at": now},
        {"id": 2, "org_id": 1, "title": "b", "readers": [BEN], "price": "10", "owners": [ADA], "at": "2001-01-01"},
        {"id": 3, "org_id": 2, "title": "c", "at": "2001-01-01"},
        {"id": 4, "org_id": 9, "title": "d", "readers": []},
    ]
    for table in ("docs", "docs_copy"):
        await teams.insert(table, *rows)
    await teams.policy("docs_copy", "all", command="SELECT", using_expression="true")
    await teams.policy("docs", "p", using_expression=expression, with_check_expression="true")
    for user, ids in ids_by_user.items():
        by = await teams.user(user)
        assert [row["id"] for row in await teams.list("docs?order=id", by)] == ids
        # The same rows are read by their keys and changed, and no others.
        statuses = [(await teams.ask("GET", f"/docs/{number}", None, by)).status for number in range(1, 5)]
        assert [number for number, status in enumerate(statuses, 1) if status == 200] == ids
        answer = await teams.ask("PATCH", "/docs?id=gt.0", {"email": "x"}, by)
        assert sorted(row["id"] for row in answer.json) == ids


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("auth.role() = 'service_role'", "never `service_role`"),
        ("auth.role() in ('authenticated', 'service_role')", "never `service_role`"),
        ("auth.role() = 'editor'", "never `editor`"),
        ("auth.jwt() ->> 'aal' = 'aal2'", "no claim `aal`"),
        ("auth.jwt() -> 'app_metadata' ->> 'plan' = 'pro'", "no claim `app_metadata`"),
        ("auth.jwt() is null", "may not use"),
        ("at + interval '1 day' > now()", "An interval is added to `now()`"),
        ("at > now() - interval '1 month'", "An interval is added to `now()`"),
        ("at > now() - interval '999999 weeks'", "at most 100 years"),
        ("price = any(readers)", "compares number with text"),
        ("title > any(array['a'])", "`= any(array)` and `<> all(array)`"),
        ("title = any(title)", "takes an array"),
        ("case when title then 1 end = 1", "one of these is a value"),
        ("(select title, id from docs) = 'a'", "may not use"),
    ],
)
async def test_a_form_that_has_no_meaning_here_is_refused_with_what_to_do(
    teams: Tables, expression: str, message: str
) -> None:
    body = {"table_name": "docs", "policy_name": "p", "using_expression": expression}
    answer = await teams.ask("POST", "/rls/policies", body)
    assert answer.status == 400
    assert message in answer.json["error"]["message"], answer.content


async def test_a_policy_for_whoever_has_signed_in_is_named_as_open(teams: Tables) -> None:
    for expression in ("auth.role() = 'authenticated'", "auth.uid() is not null"):
        answer = await teams.policy("docs", "p", command="SELECT", using_expression=expression)
        assert answer["warnings"] == ["`docs`: any signed-in user may SELECT any row."]


async def test_a_policy_may_ask_for_the_address_that_the_caller_has_proven(teams: Tables) -> None:
    """Anybody can sign up with the address of somebody else, so one that is not verified counts as none."""
    addresses = {user: f"{user}@users.test" for user in (ADA, BEN)}
    await teams.insert("docs", {"id": 1, "email": addresses[ADA]}, {"id": 2, "email": addresses[BEN]})
    by = await teams.user(ADA)

    async def see(expression: str, **headers: str) -> list[int]:
        await teams.policy("docs", "p", using_expression=expression)
        return [row["id"] for row in await teams.list("docs?order=id", None if headers else by, **headers)]

    forms = ["email = auth.email()", "auth.jwt() ->> 'email' = email", "email = (select current_user_email())"]
    for form in forms:
        assert await see(form) == []
    assert await see("(auth.jwt() ->> 'email_verified')::boolean") == []
    assert await see("(auth.jwt() ->> 'is_anonymous')::boolean is false") == [1, 2]
    await verify_user(teams.world.application, teams.app.id, ADA)
    for form in forms:
        assert await see(form) == [1]
        assert await see(form, x_platform_as_user=ADA) == [1]
        assert (await teams.ask("GET", "/docs/1", None, by)).status == 200
        assert (await teams.ask("GET", "/docs/2", None, by)).status == 404
        assert (await teams.ask("POST", "/docs", {"id": 3, "email": addresses[BEN]}, by)).status == 403
        simulation = await teams.ask("POST", "/rls/simulate", {"table": "docs", "viewers": [ADA, DAN]})
        assert [each["visible"] for each in simulation.json["viewers"]] == [1, 0]
    assert await see("(auth.jwt() ->> 'email_verified')::boolean") == [1, 2]
