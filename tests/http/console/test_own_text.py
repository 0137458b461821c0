"""Admins mark tables, keys and files as the app's own text on their pages, and the audit log says so."""

import pytest

from tests.http.console.test_runs import Runner


@pytest.mark.parametrize(("place", "prefix"), [("kv", "settings:"), ("files", "handbook/")])
async def test_an_admin_marks_keys_and_files_and_ends_that(visitor: Runner, place: str, prefix: str) -> None:
    path = f"/console/apps/{visitor.app_id}/{place}"
    page = await visitor.open(path)
    assert "None is marked" in page.text
    answer = await visitor.send(f"{path}/own-text", page, own_prefix=prefix, own="yes")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path}#own-text")
    page = await visitor.open(path)
    assert f'that begin with <code class="theirs">{prefix}</code>' in page.text
    await visitor.send(f"{path}/own-text", page, own_prefix=prefix, own="no")
    assert "None is marked" in (await visitor.open(path)).text
    log = (await visitor.open(f"/console/apps/{visitor.app_id}/audit-log")).text
    assert log.count("own_text") >= 2


async def test_an_admin_marks_a_table_that_only_the_app_writes(visitor: Runner) -> None:
    columns = {"id": {"type": "text", "primaryKey": True}, "text": "text"}
    await visitor.baobab.client.post(
        f"/v1/{visitor.app_id}/schema/apply",
        json={"schema": {"tables": {"handbook": {"columns": columns}}}},
        headers=visitor.baobab.owner,
    )
    path = f"/console/apps/{visitor.app_id}/tables/handbook"
    for own, words in (("yes", "End the mark"), ("no", "Mark as own text")):
        await visitor.send(f"{path}/own-text", await visitor.open(path), own=own)
        assert f"<button>{words}</button>" in (await visitor.open(path)).text
    assert "schema.own_text" in (await visitor.open(f"/console/apps/{visitor.app_id}/audit-log")).text


async def test_a_beginning_that_is_missing_comes_back_with_what_is_wrong(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/kv"
    answer = await visitor.send(f"{path}/own-text", await visitor.open(path), own_prefix=" ", own="yes")
    assert answer.status_code == 400
