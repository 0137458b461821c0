"""Changes as they happen: over WebSockets and SSE, on two servers, to those who may see the rows."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from baobab.composition import Application
from baobab.http import socket
from baobab.storage.sql.database import StatementTimeout
from baobab.tools.core.stream import StreamEnded
from baobab.tools.data.actor import Actor
from baobab.tools.data.live import feed
from baobab.tools.data.live.feed import LiveFeeds
from baobab.tools.data.live.listener import Listener
from baobab.tools.data.rows.visibility import Visibility
from baobab.tools.data.schema.catalogue import Catalogues
from tests.conftest import KEY
from tests.servers import TIMEOUT_SECONDS
from tests.tools.data.conftest import ADA, BEN, POSTS
from tests.tools.data.sockets import Live, Machine, open_machines
from tests.users import verify_user

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHER = "33333333-3333-4333-8333-333333333333"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def machines(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Machine]]:
    async with open_machines(tmp_path_factory.mktemp("live")) as opened_machines:
        yield opened_machines


@pytest_asyncio.fixture(loop_scope="module")
async def live(machines: list[Machine]) -> Live:
    response = await machines[0].client.post(
        "/init", json={"name": f"live-{uuid4().hex[:8]}"}, headers={"authorization": f"Bearer {KEY}"}
    )
    app = Live(machines, response.json()["app_id"])
    await app.ask("POST", "/schema/apply", {"schema": {"tables": {"posts": POSTS}}})
    await app.ask("POST", "/rls", {"table_name": "posts", "user_column": "user_id", "public_read_column": "public"})
    answer = await app.ask("POST", "/realtime/configure", {"tables": ["posts"]})
    assert answer.json() == {"configured": [{"table": "posts", "status": "enabled"}]}
    return app


async def test_a_change_on_one_server_is_told_on_the_other(live: Live) -> None:
    async with live.open(on=1) as client:
        connected_event = await client.read()
        assert (connected_event["type"], connected_event["app_id"], connected_event["role"]) == (
            "connected",
            live.app_id,
            "service",
        )
        await client.send("subscribe", table="posts", filter={"title": "a"})
        assert await client.read() == {"type": "subscribed", "table": "posts", "filter": {"title": "a"}}
        await live.insert("posts", {"title": "b"})
        row = await live.insert("posts", {"title": "a"})
        inserted_event = await client.read()
        body = (await live.ask("PATCH", f"/posts/{row['id']}", {"score": 5})).json()
        updated_event = await client.read()
        await live.ask("DELETE", f"/posts/{row['id']}")
        deleted_event = await client.read()
    fields = ("type", "table", "op", "record", "old_record")
    assert [[event[name] for name in fields] for event in (inserted_event, updated_event, deleted_event)] == [
        ["change", "posts", "INSERT", row, None],
        ["change", "posts", "UPDATE", body, row],
        ["change", "posts", "DELETE", None, body],
    ]
    assert inserted_event["id"] < updated_event["id"] < deleted_event["id"]
    assert inserted_event["timestamp"] < updated_event["timestamp"] < deleted_event["timestamp"]


async def test_a_browser_sends_its_token_as_a_protocol_and_not_in_the_address(live: Live) -> None:
    ada = await live.user(ADA)
    async with live.open("", protocols=["baobab", f"bearer.{ada}"]) as client:
        assert client.socket.subprotocol == "baobab"
        hello = await client.read()
        assert (hello["type"], hello["role"]) == ("connected", "user")
    async with live.open("", protocols=["baobab", "bearer.bb_sk_nobody"]) as client:
        assert (await client.read())["error"]["code"] == "AUTH_INVALID_API_KEY"
        assert await client.read() == 1008


@pytest.mark.parametrize("is_user", [True, False])
async def test_a_row_enters_and_leaves_the_filter_of_a_subscription(live: Live, is_user: bool) -> None:
    ada = await live.user(ADA)
    async with live.open(ada if is_user else KEY) as client:
        await client.send("subscribe", table="posts", filter={"title": "a"})
        assert [(await client.read())["type"] for _ in range(2)] == ["connected", "subscribed"]
        row = await live.insert("posts", {"title": "a"}, token=ada)
        assert (await client.read())["op"] == "INSERT"
        await live.ask("PATCH", f"/posts/{row['id']}", {"title": "b"}, token=ada)
        event = await client.read()
        old = {"id": row["id"]} if is_user else row
        assert (event["op"], event["record"], event["old_record"]) == ("DELETE", None, old)
        await live.ask("PATCH", f"/posts/{row['id']}", {"score": 7}, token=ada)
        again = (await live.ask("PATCH", f"/posts/{row['id']}", {"title": "a"}, token=ada)).json()
        event = await client.read()
        assert (event["op"], event["record"], event["old_record"]) == ("INSERT", again, None)


async def test_whoever_saw_the_children_of_a_deleted_parent_is_told_that_they_are_gone(live: Live) -> None:
    ada, ben = await live.user(ADA), await live.user(BEN)

    def refer_to(table: str) -> dict[str, Any]:
        return {"type": "integer", "references": {"table": table, "column": "id", "onDelete": "CASCADE"}}

    key = {"id": {"type": "serial", "primaryKey": True}}
    tables = {
        "boards": {"columns": {**key, "owner": {"type": "uuid"}, "title": {"type": "text"}}},
        "cards": {"columns": {**key, "board_id": refer_to("boards"), "text": {"type": "text"}}},
        "marks": {"columns": {**key, "card_id": refer_to("cards")}},
    }
    answer = await live.ask("POST", "/schema/apply", {"schema": {"tables": {"posts": POSTS, **tables}}})
    assert answer.status_code == 200, answer.text
    conditions = {
        "boards": "owner = auth.uid()",
        "cards": "exists (select 1 from boards where boards.id = board_id)",
        "marks": "exists (select 1 from cards where cards.id = card_id)",
    }
    for table, expression in conditions.items():
        body = {"table_name": table, "policy_name": "mine", "role": "user", "using_expression": expression}
        assert (await live.ask("POST", "/rls/policies", body)).status_code in (200, 201)
    await live.ask("POST", "/realtime/configure", {"tables": list(tables)})
    boards = [await live.insert("boards", {"owner": owner, "title": "t"}) for owner in (ADA, BEN)]
    cards = [await live.insert("cards", {"board_id": board["id"], "text": "x"}) for board in boards]
    marks = [await live.insert("marks", {"card_id": card["id"]}) for card in cards]
    async with live.open(ada) as hers, live.open(ben) as his:
        for client in (hers, his):
            await client.subscribe("boards")
            for table in ("cards", "marks"):
                await client.send("subscribe", table=table)
                assert (await client.read())["type"] == "subscribed"
        answer = await live.ask("DELETE", f"/boards/{boards[0]['id']}")
        assert answer.status_code in (200, 204), answer.text
        events = [await hers.read() for _ in tables]
        deletions = {(event["table"], event["op"], event["old_record"]["id"]) for event in events}
        first_rows = {"boards": boards[0], "cards": cards[0], "marks": marks[0]}
        assert deletions == {(table, "DELETE", row["id"]) for table, row in first_rows.items()}
        # Of hers he is told nothing: what he hears first is his own.
        await live.ask("PATCH", f"/cards/{cards[1]['id']}", {"text": "y"})
        event = await his.read()
        assert (event["table"], event["op"], event["record"]["id"]) == ("cards", "UPDATE", cards[1]["id"])


async def test_a_client_may_subscribe_before_it_is_told_that_it_is_connected(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_arrived, send_pieces = asyncio.Event(), socket._send_pieces

    async def send_later(*arguments: Any) -> Any:
        await has_arrived.wait()
        return await send_pieces(*arguments)

    monkeypatch.setattr(socket, "_send_pieces", send_later)
    async with live.open() as client:
        await client.send("subscribe", table="posts")
        # The server has read the message when it answers what came after it.
        await (await client.socket.ping())
        has_arrived.set()
        assert [(await client.read())["type"] for _ in range(2)] == ["connected", "subscribed"]


async def test_each_reader_is_told_what_their_policies_show(live: Live) -> None:
    ada, ben = await live.user(ADA), await live.user(BEN)
    async with live.open(ada) as hers, live.open(ben, on=1) as his, live.open("", on=1) as visitors:
        for client in (hers, his, visitors):
            await client.subscribe("posts")
        row = await live.insert("posts", {"title": "secret"}, token=ada)
        key = {"id": row["id"]}
        event = await hers.read()
        assert (event["op"], event["record"], event["old_record"]) == ("INSERT", row, None)
        await live.ask("PATCH", f"/posts/{row['id']}", {"public": True}, token=ada)
        public = {**row, "public": True}
        for client, op, old in ((hers, "UPDATE", key), (his, "INSERT", None), (visitors, "INSERT", None)):
            event = await client.read()
            assert (event["op"], event["record"], event["old_record"]) == (op, public, old)
        # For whom the row is not there any more, it is gone.
        await live.ask("PATCH", f"/posts/{row['id']}", {"public": False, "title": "hidden"}, token=ada)
        assert (await hers.read())["record"]["title"] == "hidden"
        for client in (his, visitors):
            event = await client.read()
            assert (event["op"], event["record"], event["old_record"]) == ("DELETE", None, key)


async def test_the_policies_of_the_moment_count(live: Live) -> None:
    ben = await live.user(BEN)
    async with live.open(ben) as client:
        await client.subscribe("posts")
        await live.insert("posts", {"title": "hidden"})
        expression = {"policy_name": "all", "role": "user", "using_expression": "title like 'o%'"}
        await live.ask("POST", "/rls/policies", {"table_name": "posts", **expression})
        await live.insert("posts", {"title": "open"})
        assert (await client.read())["record"]["title"] == "open"


@pytest.mark.parametrize(
    ("column", "expression", "shown_value", "hidden_value"),
    [
        ({"type": "numeric"}, "value > 9", "10", "8.5"),
        ({"type": "bigint"}, "value in (9007199254740993)", "9007199254740993", "9007199254740992"),
        ({"type": "text"}, "lower(value) = 'grÜSSE'", None, "x"),
        ({"type": "text"}, "value >= 'a'", "b", "B"),
        ({"type": "boolean"}, "value", True, False),
        ({"type": "timestamptz"}, "value < now()", "2020-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"),
        ({"type": "jsonb"}, "value->>'for' = current_user_role()", {"for": "user"}, {"for": "editor"}),
        ({"type": "uuid"}, "value = current_user_id()", ADA, BEN),
        ({"type": "text"}, "exists (select 1 from members m where m.team = items.value)", "red", "blue"),
        ({"type": "text"}, "value in (current_user_values('members', 'user_id', 'team'))", "red", "blue"),
        ({"type": "text"}, "value = (select team from members where user_id = auth.uid())", "red", "blue"),
        ({"type": "text"}, "value = auth.email()", f"{ADA}@users.test", f"{BEN}@users.test"),
        ({"type": "text[]"}, "current_user_id() = any(value)", [BEN, ADA], [BEN]),
        ({"type": "timestamptz"}, "value > now() - interval '1 day'", "2999-01-01T00:00:00+00:00", "2001-01-01"),
    ],
)
async def test_a_policy_means_of_a_change_what_it_means_of_a_row(
    live: Live, column: Any, expression: str, shown_value: Any, hidden_value: Any
) -> None:
    item = {"columns": {"id": {"type": "serial", "primaryKey": True}, "value": column}}
    member = {"columns": {"id": {"type": "serial", "primaryKey": True}, "team": {"type": "text"}, "user_id": "uuid"}}
    tables = {"posts": POSTS, "items": item, "members": member}
    response = await live.ask("POST", "/schema/apply", {"schema": {"tables": tables}})
    assert response.status_code == 200, response.text
    await live.insert("members", {"team": "red", "user_id": ADA})
    await live.insert("members", {"team": "blue", "user_id": BEN})
    if "members m" in expression:
        await live.ask("DELETE", f"/members?user_id=eq.{BEN}")
    await live.user(ADA)
    await verify_user(live.machines[0].application, live.app_id, ADA)
    for table, using in (("items", expression), ("members", "true")):
        policy = {"table_name": table, "policy_name": "p", "using_expression": using}
        assert (await live.ask("POST", "/rls/policies", policy)).status_code == 200
    await live.ask("POST", "/realtime/configure", {"tables": ["items"]})
    async with live.open(await live.user(ADA)) as client:
        await client.subscribe("items")
        rows = [
            await live.insert("items", {"value": value}) for value in (hidden_value, shown_value) if value is not None
        ]
        last = await live.insert("members", {"team": "green"})
        assert last
        body = (await live.ask("GET", "/items", token=await live.user(ADA))).json()
        for row in body:
            assert (await client.read())["record"] == row
        await client.send("unsubscribe", table="items")
        assert await client.read() == {"type": "unsubscribed", "table": "items"}
    assert body == [row for row in rows if row["value"] == shown_value]


async def test_a_stream_of_events_goes_on_after_the_last_id(live: Live) -> None:
    ada = await live.user(ADA)
    async with live.follow("table=posts&public=true", ada) as events:
        assert events.response.headers["content-type"] == "text/event-stream"
        assert (await events.read())["type"] == "subscribed"
        await live.insert("posts", {"title": "one", "public": True})
        first = await events.read()
    await live.insert("posts", {"title": "two", "public": True})
    await live.insert("posts", {"title": "another's"})
    await live.insert("posts", {"title": "mine, not public"}, token=ada)
    async with live.follow(
        f"table=posts&public=true&token={ada}", "", 1, **{"last-event-id": str(first["number"])}
    ) as on:
        assert (await on.read())["type"] == "subscribed"
        second = await on.read()
        assert (first["record"]["title"], second["record"]["title"]) == ("one", "two")
        assert second["number"] == second["id"] > first["id"]
        await live.insert("posts", {"title": "three", "public": True})
        assert (await on.read())["record"]["title"] == "three"


async def test_a_stream_that_is_open_follows_the_table(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe, subscriptions = feed.AppFeed.subscribe, list[bool]()

    async def subscribe_slowly(*arguments: Any) -> None:
        # As long as the answer's head would take to reach the client.
        for _ in range(100):
            await asyncio.sleep(0)
        await subscribe(*arguments)
        subscriptions.append(True)

    monkeypatch.setattr(feed.AppFeed, "subscribe", subscribe_slowly)
    async with live.follow("table=posts"):
        assert subscriptions


async def test_who_comes_back_too_late_is_told_to_read_anew(live: Live) -> None:
    async with live.open() as client:
        connected_event = await client.read()
        await live.ask("POST", "/posts", [{"title": "x"}] * 1000)
        await live.insert("posts", {"title": "last"})
        await client.send("subscribe", table="posts", since=connected_event["last_id"])
        assert (await client.read())["type"] == "subscribed"
        resync_event = await client.read()
        assert (resync_event["type"], resync_event["table"]) == ("resync", "posts")
        assert resync_event["last_id"] == connected_event["last_id"] + 1001


@pytest.mark.parametrize("is_renamed", [False, True], ids=["a new table", "a renamed table"])
async def test_the_rows_of_a_dropped_table_are_not_told_to_readers_of_its_namesake(
    live: Live, *, is_renamed: bool
) -> None:
    ben = await live.user(BEN)
    async with live.open(ben) as client:
        before = (await client.read())["last_id"]
    await live.insert("posts", {"title": "of a dropped table", "user_id": ADA})
    other = {"tables": {"letters": POSTS}, "_drop": ["posts"]}
    assert (await live.ask("POST", "/schema/apply", {"schema": other})).status_code == 200
    namesake = {"tables": {"posts": POSTS}, "_renameTables": {"letters": "posts"}}
    if not is_renamed:
        namesake = {"tables": {"posts": POSTS}, "_drop": ["letters"]}
    assert (await live.ask("POST", "/schema/apply", {"schema": namesake})).status_code == 200
    policy = {"table_name": "posts", "policy_name": "open", "command": "SELECT", "role": "user"}
    await live.ask("POST", "/rls/policies", {**policy, "using_expression": "true"})
    await live.ask("POST", "/realtime/configure", {"tables": ["posts"]})
    row = await live.insert("posts", {"title": "of the namesake"})
    async with live.open(ben) as client:
        await client.read()
        await client.send("subscribe", table="posts", since=before)
        assert (await client.read())["type"] == "subscribed"
        assert (await client.read())["record"] == row


async def test_a_thousand_follow_one_table(live: Live, stack: contextlib.ExitStack) -> None:
    ben = await live.user(BEN)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async with live.open(ben) as one, live.open(ben, on=1) as other:
            await one.subscribe("posts")
            await other.subscribe("posts")
            feeds = [machine.application for machine in live.machines]
            listeners = [await _listen(stack, app, live.app_id, number) for app in feeds for number in range(500)]
            mine = listeners[7]
            row = await live.insert("posts", {"title": "x", "public": True})
            assert (await one.read())["record"] == (await other.read())["record"] == row
            changes = [await _read_change(listener) for listener in listeners]
            assert {event["record"]["id"] for event in changes} == {row["id"]}
            private = await live.insert("posts", {"title": "y", "user_id": mine.actor.user_id})
            assert (await _read_change(mine))["record"] == private
            # All that stands before it in the log has been told: nobody else gets another one.
            await live.insert("posts", {"title": "z", "public": True})
            changes = [await _read_change(listener) for listener in listeners]
            same = [number for number, listener in enumerate(listeners) if listener.actor == mine.actor]
            assert [number for number, event in enumerate(changes) if event["record"]["title"] == "y"] == same[1:]


async def test_a_change_that_cannot_be_told_is_passed_over_after_some_attempts(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Visibility.find

    def fail(self: Visibility, table: Any, images: list[Any], readers: Any, removed: Any) -> Any:
        if any(row.get("title") == "slow" for row in images):
            raise StatementTimeout("it takes too long")
        return find(self, table, images, readers, removed)

    monkeypatch.setattr(Visibility, "find", fail)
    monkeypatch.setattr(feed, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(feed, "_POLL_SECONDS", 0.01)
    async with live.open() as client:
        await client.subscribe("posts")
        await live.insert("posts", {"title": "slow"})
        passed_over = await client.read()
        assert (passed_over["type"], passed_over["table"]) == ("resync", "posts")
        row = await live.insert("posts", {"title": "quick"})
        assert (await client.read())["record"] == row


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Closes listeners that have no socket at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield stack


async def _listen(stack: contextlib.ExitStack, application: Application, app_id: str, number: int) -> Listener:
    services = application.services
    listener = Listener(Actor("user", f"00000000-0000-4000-8000-{number:012d}", "user"), str(number))
    feed = stack.enter_context(services.of(LiveFeeds).join(app_id, listener))
    table = (await services.of(Catalogues).get(app_id)).table("posts")
    await feed.subscribe(listener, table, {}, None)
    return listener


async def _read_change(listener: Listener) -> Any:
    async for message in listener.read():
        if message is not None and message.kind == "change":
            return json.loads(message.content)
    raise EOFError


async def test_a_session_that_ends_ends_its_stream_at_once(live: Live) -> None:
    ada = await live.user(OTHER)
    async with live.open(ada, on=1) as client, live.follow("table=posts", ada, on=1) as events:
        await client.subscribe("posts")
        assert (await events.read())["type"] == "subscribed"
        signed_out = await live.machines[0].client.post(
            f"/auth/{live.app_id}/logout", headers={"authorization": f"Bearer {ada}"}, json={}
        )
        assert signed_out.status_code < 300, signed_out.text
        assert await client.read() == 1008
        with pytest.raises(EOFError):
            await events.read()


async def test_a_paused_app_closes_with_1013_and_one_that_is_gone_with_1008(live: Live) -> None:
    async with live.open(on=1) as client:
        await client.subscribe("posts")
        assert (await live.ask("PATCH", "/config/pause", {"paused": True})).status_code == 200
        assert await client.read() == 1013
    async with live.open(on=1) as client:
        assert (await client.read())["error"]["code"] == "APP_PAUSED"
        assert await client.read() == 1013
    assert (await live.ask("GET", "/posts")).status_code == 503
    await live.ask("PATCH", "/config/pause", {"paused": False})
    while (await live.ask("GET", "/posts", on=1)).status_code == 503:
        await asyncio.sleep(0.02)
    async with live.open(on=1) as client, live.open() as other:
        await client.subscribe("posts")
        await other.subscribe("posts")
        response = await live.machines[0].client.delete(
            f"/apps/{live.app_id}", headers={"authorization": f"Bearer {KEY}"}
        )
        assert response.status_code in (200, 204), response.text
        assert await client.read() == 1008
        assert await other.read() == 1008


async def test_visitors_are_turned_away_where_the_app_asks_for_sign_in(live: Live) -> None:
    async with live.open("", on=1) as client:
        await client.subscribe("posts")
        await live.ask("PATCH", "/config/access-mode", {"access_mode": "authenticated"})
        assert await client.read() == 1008
    async with live.open("") as client:
        assert (await client.read())["error"]["code"] == "AUTH_REQUIRED"
        assert await client.read() == 1008


async def test_presence_is_told_across_servers_to_those_who_track(live: Live) -> None:
    async with live.open(await live.user(ADA)) as hers, live.open("", on=1) as visitor, live.open() as silent:
        ids = [(await client.read())["client_id"] for client in (hers, visitor, silent)]
        await hers.send("presence_update", metadata={"ignored": True})
        await hers.send("presence_track", metadata={"name": "Ada"})
        assert await hers.read() == {"type": "presence_state", "clients": []}
        await visitor.send("presence_track", metadata={})
        there = {"client_id": ids[0], "user_id": ADA, "metadata": {"name": "Ada"}}
        assert await visitor.read() == {"type": "presence_state", "clients": [there]}
        came = {"type": "presence_join", "client_id": ids[1], "user_id": None, "metadata": {}}
        assert await hers.read() == came
        await visitor.send("presence_update", metadata={"typing": True})
        update = {"type": "presence_update", "client_id": ids[1], "metadata": {"typing": True}}
        assert await hers.read() == update
        await visitor.socket.close()
        assert await hers.read() == {"type": "presence_leave", "client_id": ids[1], "user_id": None}
        await silent.send("unknown")
        assert (await silent.read())["type"] == "error"


async def test_broadcasts_reach_those_who_joined_and_visitors_only_listen(live: Live) -> None:
    async with live.open(await live.user(ADA)) as hers, live.open("", on=1) as visitor:
        ids = [(await client.read())["client_id"] for client in (hers, visitor)]
        for client in (hers, visitor):
            await client.send("join", channel="room")
            assert await client.read() == {"type": "joined", "channel": "room"}
        await hers.send("broadcast", channel="room", event="wave", payload={"n": 1})
        message = {"type": "broadcast", "channel": "room", "event": "wave", "payload": {"n": 1}}
        assert await visitor.read() == {**message, "client_id": ids[0], "user_id": ADA}
        await visitor.send("broadcast", channel="room", event="wave")
        assert (await visitor.read())["code"] == "AUTH_RLS_REQUIRES_USER_JWT"
        answer = await live.ask(
            "POST", "/realtime/broadcast", {"channel": "room", "event": "wave", "payload": {"n": 1}}
        )
        assert answer.json() == {"told": True}
        for client in (hers, visitor):
            assert await client.read() == {**message, "client_id": None, "user_id": None}
        await hers.send("event", event="place_order", payload={})
        assert (await hers.read())["message"] == "No handler for event: place_order"


async def test_what_cannot_be_followed_is_said(live: Live) -> None:
    schema_tables = {"posts": POSTS, "closed": {"columns": {"id": {"type": "serial", "primaryKey": True}}}}
    await live.ask("POST", "/schema/apply", {"schema": {"tables": schema_tables}})
    async with live.open("") as client:
        warning = await client.subscribe("closed")
        assert (warning["type"], warning["code"], warning["table"]) == (
            "warning",
            "TABLE_NOT_REALTIME_ENABLED",
            "closed",
        )
        for message, code in (
            ({"table": "nothing"}, "VALIDATION_TABLE_NOT_FOUND"),
            ({"table": "posts", "filter": {"nothing": 1}}, "VALIDATION_COLUMN_NOT_FOUND"),
            ({"table": "posts", "filter": {"score": "x"}}, "VALIDATION_INVALID_INPUT"),
            ({"table": "posts", "filter": []}, "VALIDATION_INVALID_INPUT"),
            ({"table": ["posts"]}, "VALIDATION_INVALID_INPUT"),
            ({"table": "posts", "since": -1}, "VALIDATION_INVALID_INPUT"),
        ):
            await client.send("subscribe", **message)
            answer = await client.read()
            assert (answer["type"], answer.get("code")) == ("error", code), (message, answer)
        for text in ("[]", "{", "1", "[" * 4000, '{"type": NaN}', "\x00"):
            await client.socket.send(text)
            assert (await client.read())["type"] == "error"
        await live.ask("POST", "/realtime/configure", {"tables": ["closed"]})
        await client.send("subscribe", table="closed")
        assert (await client.read())["code"] == "AUTH_RLS_REQUIRES_USER_JWT"
    refusal = await live.ask("GET", "/realtime/changes?table=closed&token=nonsense", token="")
    assert refusal.status_code == 401
    await live.ask("DELETE", "/realtime/closed")
    assert (await live.ask("GET", "/realtime/changes?table=closed")).json()["error"][
        "code"
    ] == "REALTIME_NOT_CONFIGURED"
    config = (await live.ask("GET", "/realtime/config")).json()
    assert [table["table_name"] for table in config["tables"]] == ["posts"]
    assert config["websocket_url"].startswith("ws://")


async def test_who_says_too_much_is_closed(live: Live) -> None:
    async with live.open("") as client:
        await client.read()
        for _ in range(200):
            await client.socket.send('{"type": "unsubscribe", "table": "posts"}')
        answers = [await client.read()]
        while not isinstance(answers[-1], int):
            answers.append(await client.read())
        assert answers[-1] == 1008


async def test_who_reads_too_slowly_is_dropped(live: Live, stack: contextlib.ExitStack) -> None:
    listener = await _listen(stack, live.machines[0].application, live.app_id, 1)
    for _ in range(2):
        rows = [{"title": "x", "public": True}] * 600
        assert (await live.ask("POST", "/posts", rows)).status_code == 201
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not listener.is_ended:
            await asyncio.sleep(0.01)
    with pytest.raises(StreamEnded, match="read too slowly") as error_info:
        await _read_change(listener)
    assert error_info.value.code == 4008


async def test_there_is_room_for_so_many_connections(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with open_machines(tmp_path_factory.mktemp("few"), 1, realtime_connections="2") as opened_machines:
        response = await opened_machines[0].client.post(
            "/init", json={"name": "few"}, headers={"authorization": f"Bearer {KEY}"}
        )
        live = Live(opened_machines, response.json()["app_id"])
        # A socket is open before its place is counted, so each waits for the answer to the one before.
        async with live.open() as one:
            assert (await one.read())["type"] == "connected"
            async with live.open("") as other:
                assert (await other.read())["type"] == "connected"
                async with live.open() as third:
                    assert (await third.read())["error"]["code"] == "REALTIME_CONNECTION_LIMIT"
                    assert await third.read() == 1013
        refusal = await live.ask("GET", "/realtime/changes?table=x")
        assert refusal.status_code == 404


async def _set_rules(live: Live, *rules: tuple[str, str, str]) -> None:
    body = {"rules": [dict(zip(("pattern", "join", "send"), rule, strict=True)) for rule in rules]}
    answer = await live.ask("PUT", "/realtime/channels", body)
    assert answer.status_code == 200, answer.text
    assert (await live.ask("GET", "/realtime/channels")).json() == body


async def test_rules_say_who_joins_a_channel_and_who_sends_to_it(live: Live) -> None:
    ada, ben = await live.user(ADA), await live.user(BEN)
    await _set_rules(
        live, ("of:{user.id}", "owner", "owner"), ("news", "public", "deny"), ("talk:*", "authed", "authed")
    )
    expected_answers: dict[tuple[str, str], tuple[str, str]] = {
        # Who and where: what joining and what sending is answered with.
        (ada, f"of:{ADA}"): ("joined", "sent"),
        (ben, f"of:{ADA}"): ("AUTH_INSUFFICIENT_PERMISSIONS", ""),
        ("", f"of:{ADA}"): ("AUTH_INSUFFICIENT_PERMISSIONS", ""),
        (ben, "news"): ("joined", "AUTH_INSUFFICIENT_PERMISSIONS"),
        ("", "news"): ("joined", "AUTH_INSUFFICIENT_PERMISSIONS"),
        (ben, "talk:1"): ("joined", "sent"),
        ("", "talk:1"): ("AUTH_INSUFFICIENT_PERMISSIONS", ""),
        (ben, "elsewhere"): ("AUTH_INSUFFICIENT_PERMISSIONS", ""),
        (KEY, "elsewhere"): ("joined", "sent"),
    }
    for (token, channel), (joining, sending) in expected_answers.items():
        async with live.open(token) as client, live.open(on=1) as operator:
            for each in (client, operator):
                assert (await each.read())["type"] == "connected"
            await operator.send("join", channel=channel)
            assert (await operator.read())["type"] == "joined"
            await client.send("join", channel=channel)
            event = await client.read()
            assert event.get("code", event["type"]) == joining, (channel, event)
            if not sending:
                continue
            await client.send("broadcast", channel=channel, event="wave", payload={})
            event = await (operator if sending == "sent" else client).read()
            assert event.get("code", event["type"]) == ("broadcast" if sending == "sent" else sending), (channel, event)


async def test_a_rule_that_closes_a_channel_silences_those_who_had_joined(live: Live) -> None:
    ben = await live.user(BEN)
    async with live.open(ben, on=1) as client:
        assert (await client.read())["type"] == "connected"
        await client.send("join", channel="talk")
        assert (await client.read())["type"] == "joined"
        await _set_rules(live, ("open", "authed", "deny"))
        await client.send("join", channel="open")
        assert (await client.read())["type"] == "joined"
        for channel in ("talk", "open"):
            await live.ask("POST", "/realtime/broadcast", {"channel": channel, "event": "e"})
        assert (await client.read())["channel"] == "open"


async def test_presence_is_told_within_a_channel_and_the_presence_of_the_app_can_be_closed(live: Live) -> None:
    ada, ben = await live.user(ADA), await live.user(BEN)
    await _set_rules(live, ("room:**", "authed", "deny"))
    async with live.open(ada) as hers, live.open(ben, on=1) as his, live.open(ben) as his_other:
        for client in (hers, his, his_other):
            assert (await client.read())["type"] == "connected"
        await hers.send("presence_track", metadata={})
        assert (await hers.read())["code"] == "AUTH_INSUFFICIENT_PERMISSIONS"
        for client, channel in ((hers, "room:1"), (his_other, "room:2")):
            await client.send("presence_track", channel=channel, metadata={"n": 1})
            assert await client.read() == {"type": "presence_state", "channel": channel, "clients": []}
        await his.send("presence_track", channel="room:1", metadata={})
        state = await his.read()
        assert [(client["user_id"], client["metadata"]) for client in state["clients"]] == [(ADA, {"n": 1})]
        join = await hers.read()
        assert (join["type"], join["user_id"], join["channel"]) == ("presence_join", BEN, "room:1")
        # A connection is present in one place, and another is refused and not passed over.
        await hers.send("presence_track", channel="room:2", metadata={})
        refusal = await hers.read()
        assert (refusal["type"], "elsewhere" in refusal["message"]) == ("error", True)


async def test_rules_that_mean_nothing_are_refused(live: Live) -> None:
    for rules in (
        [{"pattern": "room", "join": "owner", "send": "deny"}],
        [{"pattern": "a", "join": "public", "send": "deny"}] * 2,
        [{"pattern": "a", "join": "everybody", "send": "deny"}],
    ):
        assert (await live.ask("PUT", "/realtime/channels", {"rules": rules})).status_code == 400
    assert (await live.ask("GET", "/realtime/channels")).json() == {"rules": []}
