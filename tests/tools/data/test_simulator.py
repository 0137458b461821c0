"""The simulator: who would see which rows, side by side."""

import pytest

from tests.tools.data.conftest import ADA, BEN, POSTS, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_each_row_says_who_sees_it(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    rows = await tables.insert(
        "posts",
        {"title": "a", "user_id": ADA},
        {"title": "b", "user_id": BEN, "public": True},
        {"title": "c"},
    )
    await tables.ask("POST", "/rls", {"table_name": "posts", "user_column": "user_id", "public_read_column": "public"})
    request = {"table": "posts", "viewers": ["anon", ADA, BEN], "order": "title"}
    simulation = (await tables.ask("POST", "/rls/simulate", request)).json
    assert simulation == {
        "table": "posts",
        "total": 3,
        "viewers": [{"viewer": "anon", "visible": 1}, {"viewer": ADA, "visible": 2}, {"viewer": BEN, "visible": 1}],
        "rows": [
            {"row": rows[0], "seen_by": [ADA]},
            {"row": rows[1], "seen_by": ["anon", ADA, BEN]},
            {"row": rows[2], "seen_by": []},
        ],
    }
    for viewer, headers in ((ADA, await tables.user(ADA)), (BEN, await tables.user(BEN)), ("anon", {})):
        listed_rows = await tables.list("posts?order=title", headers)
        assert listed_rows == [each["row"] for each in simulation["rows"] if viewer in each["seen_by"]]
    few = (await tables.ask("POST", "/rls/simulate", {**request, "where": {"title": "eq.b"}, "limit": 1})).json
    assert (few["total"], [each["row"]["title"] for each in few["rows"]]) == (1, ["b"])


async def test_a_table_without_a_key_is_compared_too(tables: Tables) -> None:
    await tables.apply({"notes": {"columns": {"text": {"type": "text"}, "rank": {"type": "integer"}}}})
    await tables.insert("notes", {"text": "a", "rank": None}, {"text": "b", "rank": 2})
    await tables.policy("notes", "some", role="anon", using_expression="rank is null")
    simulation = (
        await tables.ask("POST", "/rls/simulate", {"table": "notes", "viewers": ["anon"], "order": "text"})
    ).json
    assert [each["seen_by"] for each in simulation["rows"]] == [["anon"], []]


async def test_only_those_who_run_the_app_compare(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    request = {"table": "posts", "viewers": ["anon"]}
    assert (await tables.ask("POST", "/rls/simulate", request, await tables.user(ADA))).status == 403
    assert (await tables.ask("POST", "/rls/simulate", {**request, "viewers": ["nobody"]})).status == 400
    assert (await tables.ask("POST", "/rls/simulate", {**request, "table": "nothing"})).status == 404


async def test_a_user_is_simulated_with_the_role_that_the_app_has_given(tables: Tables) -> None:
    await tables.apply({"posts": POSTS})
    await tables.insert("posts", {"title": "a", "user_id": BEN})
    await tables.policy("posts", "staff", using_expression="current_user_role() = 'staff'")
    staff = await tables.user(ADA, role="staff")
    assert len(await tables.list("posts", staff)) == 1
    for viewer, count in ((ADA, 1), (BEN, 0)):
        request = {"table": "posts", "viewers": [viewer]}
        simulation = (await tables.ask("POST", "/rls/simulate", request)).json
        assert simulation["viewers"] == [{"viewer": viewer, "visible": count}]
        assert len(await tables.list("posts", {**tables.world.owner, "x-platform-as-user": viewer})) == count
