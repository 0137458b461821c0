"""Renames of tables and columns: nothing is lost, what names them follows, and a rename can be taken back."""

from typing import Any

import pytest

from tests.tools.data.conftest import ADA, BEN, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

POSTS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "title": {"type": "text", "unique": True},
        "user_id": "uuid",
        "score": "integer",
        "double": {"type": "integer", "generated": "score * 2"},
        "status": {"type": "text", "enum": ["open", "done"]},
    },
    "indexes": {"by_user": {"columns": ["user_id"]}, "by_both": {"columns": ["user_id", "score"], "unique": True}},
    "checks": {"positive": "score > 0"},
}
COMMENTS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "post_id": {"type": "integer", "references": {"table": "posts", "column": "id", "onDelete": "CASCADE"}},
        "about": {"type": "text", "references": "posts.title"},
    }
}
VIEWS = {"best": "select p.id, p.title as name from posts p where p.score > 1 and p.user_id is not null"}
ARTICLES: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "headline": {"type": "text", "unique": True},
        "owner": "uuid",
        "points": "integer",
        "double": {"type": "integer", "generated": "points * 2"},
        "state": {"type": "text", "enum": ["open", "done"]},
    },
    "indexes": {"by_user": {"columns": ["owner"]}, "by_both": {"columns": ["owner", "points"], "unique": True}},
    "checks": {"positive": "points > 0"},
}
NEW_COMMENTS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "article_id": {"type": "integer", "references": {"table": "articles", "column": "id", "onDelete": "CASCADE"}},
        "about": {"type": "text", "references": "articles.headline"},
    }
}
RENAMES = {"title": "headline", "user_id": "owner", "score": "points", "status": "state"}
BACK = {new: old for old, new in RENAMES.items()}
RENAMED = {
    "_renameTables": {"posts": "articles"},
    "tables": {
        "articles": {**ARTICLES, "_renameColumns": RENAMES},
        "comments": {**NEW_COMMENTS, "_renameColumns": {"post_id": "article_id"}},
    },
}
RESTORED = {
    "_renameTables": {"articles": "posts"},
    "tables": {
        "posts": {**POSTS, "_renameColumns": BACK},
        "comments": {**COMMENTS, "_renameColumns": {"article_id": "post_id"}},
    },
}
OLD_TEXT = (
    "user_id = current_user_id() or "
    "exists (select 1 from comments where comments.post_id = posts.id and about = 'title')"
)
NEW_TEXT = (
    "owner = current_user_id() or "
    "exists (select 1 from comments where comments.article_id = articles.id and about = 'title')"
)
OWN_TEXT = "post_id in (current_user_values('posts', 'user_id', 'id'))"


@pytest.fixture
async def posts(tables: Tables) -> Tables:
    await apply(tables, {"tables": {"posts": POSTS, "comments": COMMENTS}, "views": VIEWS})
    await tables.policy("posts", "own", using_expression=OLD_TEXT)
    await tables.policy("comments", "own", using_expression=OWN_TEXT)
    await tables.ask("POST", "/rls", {"table_name": "posts", "user_column": "user_id"})
    await tables.insert(
        "posts",
        {"title": "a", "user_id": ADA, "score": 1, "status": "open"},
        {"title": "b", "user_id": BEN, "score": 2, "status": "done"},
    )
    await tables.insert("comments", {"post_id": 1, "about": "a"}, {"post_id": 2, "about": "b"})
    return tables


async def apply(tables: Tables, schema: dict[str, Any], **options: Any) -> Any:
    answer = await tables.ask("POST", "/schema/apply", {"schema": schema, **options})
    assert answer.status == 200, answer.content
    return answer.json


async def list_qualifications(tables: Tables) -> dict[str, str]:
    policies = (await tables.ask("GET", "/rls")).json["policies"]
    return {f"{each['tablename']}.{each['policyname']}": each["qual"] for each in policies}


async def test_a_rename_keeps_the_rows_and_what_names_them_follows(posts: Tables) -> None:
    before = (await posts.ask("GET", "/schema")).json["schema"]
    document = {**RENAMED, "views": {"best": VIEWS["best"].replace("title", "headline")}}
    document["views"] = {
        "best": "select p.id, p.headline as name from articles p where p.points > 1 and p.owner is not null"
    }
    rehearsal = await apply(posts, document, dry_run=True)
    descriptions = [each["description"] for each in rehearsal["statements"]]
    assert "rename the table posts to articles" in descriptions
    assert "rename the column posts.title to headline" in descriptions
    assert not any(each["destructive"] for each in rehearsal["statements"])
    await apply(posts, document)
    rows = await posts.list("articles?select=id,headline,owner,points,double,state&order=id")
    assert rows == [
        {"id": 1, "headline": "a", "owner": ADA, "points": 1, "double": 2, "state": "open"},
        {"id": 2, "headline": "b", "owner": BEN, "points": 2, "double": 4, "state": "done"},
    ]
    assert (await posts.ask("GET", "/posts")).status == 404
    assert (await posts.list("comments?select=article_id,articles!article_id(headline)&id=eq.1"))[0]["articles"] == {
        "headline": "a"
    }
    assert await posts.list("best") == [{"id": 2, "name": "b"}]
    qualifications = await list_qualifications(posts)
    assert qualifications["articles.own"] == NEW_TEXT
    assert qualifications["comments.own"] == "article_id in (current_user_values('articles', 'owner', 'id'))"
    ada = await posts.user(ADA)
    assert [row["id"] for row in await posts.list("articles", ada)] == [1]
    assert [row["id"] for row in await posts.list("comments", ada)] == [1]
    new_row = await posts.ask("POST", "/articles", {"headline": "c", "points": 3}, ada)
    assert (new_row.status, new_row.json["id"], new_row.json["owner"]) == (201, 3, ADA)
    # The same document again changes nothing.
    assert (await apply(posts, document))["applied"] == 0
    refused_rows: list[tuple[dict[str, Any], str]] = [
        ({"headline": "a", "points": 9}, "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"),
        ({"owner": BEN, "points": 2}, "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"),
        ({"points": -1}, "VALIDATION_CHECK_VIOLATION"),
        ({"state": "lost"}, "VALIDATION_CHECK_VIOLATION"),
    ]
    for row, code in refused_rows:
        refusal = await posts.ask("POST", "/articles", row)
        assert refusal.json["error"]["code"] == code, refusal.content
    refusal = await posts.ask("POST", "/articles", {"state": "lost"})
    assert refusal.json["error"]["details"]["check"] == "state"
    assert (await posts.ask("POST", "/comments", {"article_id": 99})).status == 400
    # And back again.
    await apply(posts, {**RESTORED, "views": VIEWS})
    assert (await posts.ask("GET", "/schema")).json["schema"] == before
    assert (await list_qualifications(posts))["posts.own"] == OLD_TEXT
    assert len(await posts.list("posts")) == 3
    assert await posts.list("best?order=id") == [{"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
    # Indexes and conditions have their old names again, so that they can be dropped.
    plain = {"columns": {**POSTS["columns"], "title": "text", "status": "text"}}
    comments = {"columns": {**COMMENTS["columns"], "about": "text"}}
    await apply(posts, {"tables": {"posts": plain, "comments": comments}})
    same = {"title": "a", "user_id": BEN, "score": 2, "status": "lost"}
    assert (await posts.ask("POST", "/posts", same)).status == 201
    answer = await posts.ask("POST", "/rls", {"table_name": "comments", "user_column": "about"})
    assert answer.status == 200


async def test_a_view_that_the_document_leaves_out_follows_too(posts: Tables) -> None:
    await apply(posts, RENAMED)
    assert await posts.list("best") == [{"id": 2, "name": "b"}]
    document = (await posts.ask("GET", "/schema")).json["schema"]
    assert "p.headline as name from articles p" in document["views"]["best"]


async def test_writes_of_before_a_rename_can_still_be_undone(posts: Tables) -> None:
    deletion = await posts.ask("DELETE", "/posts/2")
    await apply(posts, RENAMED)
    action = dict(deletion.pairs)["x-action-id"]
    assert (await posts.ask("POST", "/data-changes/undo", {"action_id": action})).status == 200
    assert [row["headline"] for row in await posts.list("articles?order=id")] == ["a", "b"]
    assert [row["article_id"] for row in await posts.list("comments?order=id")] == [1, 2]


async def test_one_column_is_renamed_in_one_table(posts: Tables) -> None:
    columns = {name if name != "title" else "headline": column for name, column in POSTS["columns"].items()}
    comments = {"columns": {**COMMENTS["columns"], "about": {"type": "text", "references": "posts.headline"}}}
    document = {
        "tables": {
            "posts": {**POSTS, "columns": columns, "_renameColumns": {"title": "headline"}},
            "comments": comments,
        }
    }
    await apply(posts, document)
    assert [row["headline"] for row in await posts.list("posts?order=id")] == ["a", "b"]
    assert (await posts.ask("POST", "/posts", {"headline": "a", "score": 5})).status == 409
    assert (await posts.ask("PATCH", "/posts/1", {"headline": "z"})).status == 400


async def test_what_does_not_follow_by_itself_is_refused_by_name(posts: Tables) -> None:
    # The same word names the column of another table.
    text = "exists (select 1 from posts p where p.user_id = members.user_id)"
    members = {"columns": {"id": {"type": "integer", "primaryKey": True}, "user_id": "uuid"}}
    await apply(posts, {"tables": {"posts": POSTS, "comments": COMMENTS, "members": members}})
    await posts.policy("members", "authors", using_expression=text)
    columns = {name if name != "user_id" else "owner": column for name, column in POSTS["columns"].items()}
    indexes = {"by_user": {"columns": ["owner"]}, "by_both": {"columns": ["owner", "score"], "unique": True}}
    table = {**POSTS, "columns": columns, "indexes": indexes, "_renameColumns": {"user_id": "owner"}}
    document = {"tables": {"posts": table, "comments": COMMENTS, "members": members}}
    refusal = await posts.ask("POST", "/schema/apply", {"schema": document})
    assert refusal.status == 400
    assert "The policy `authors` of `members`" in refusal.json["error"]["message"]
    assert len(await posts.list("posts?user_id=not.is.null")) == 2


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"_renameTables": {"comments": "posts"}}, "the document describes `posts`"),
        ({"_renameTables": {"posts": "articles"}}, "the document describes `articles`"),
        ({"_renameTables": ["posts"]}, "must be an object"),
        ({"columns": {"nothing": "new"}}, "the document describes `new`"),
        ({"columns": {"score": "title"}}, "the document describes `title`"),
    ],
)
async def test_a_rename_that_cannot_be_meant_is_refused(posts: Tables, schema: dict[str, Any], message: str) -> None:
    table = {**POSTS, "_renameColumns": schema.pop("columns", {})}
    document = {"tables": {"posts": table, "comments": COMMENTS}, **schema}
    answer = await posts.ask("POST", "/schema/apply", {"schema": document})
    assert answer.status == 400
    assert message in answer.json["error"]["message"]


@pytest.mark.parametrize("name", ["billing", "sqlite_posts"])
async def test_a_table_is_not_renamed_to_a_name_that_a_route_or_sqlite_has(posts: Tables, name: str) -> None:
    tables = {name: POSTS, "comments": {"columns": {"id": {"type": "serial", "primaryKey": True}}}}
    document = {"tables": tables, "_renameTables": {"posts": name}}
    answer = await posts.ask("POST", "/schema/apply", {"schema": document})
    assert (answer.status, answer.json["error"]["code"]) == (400, "VALIDATION_RESERVED_TABLE")
