"""A write of rows is tried before a person is asked, and again before it is approved, and nothing of that stays."""

from typing import Any

import pytest

from baobab.tools.data.history import change_log
from tests.tools.approvals.conftest import ApprovalsClient

_TABLES: dict[str, Any] = {
    "rooms": {"columns": {"id": {"type": "integer", "primaryKey": True}, "name": {"type": "text"}}},
    "visits": {
        "columns": {
            "id": {"type": "serial", "primaryKey": True},
            "room_id": {"type": "integer", "nullable": False, "references": {"table": "rooms", "column": "id"}},
            "code": {"type": "text", "unique": True},
            "guests": {"type": "integer"},
        },
        "checks": {"some_guests": "guests > 0"},
    },
}
_GOOD = {"room_id": 1, "code": "b", "guests": 2}
_BROKEN = [
    ({"room_id": 9}, "VALIDATION_FOREIGN_KEY_VIOLATION"),
    ({"room_id": None}, "VALIDATION_NOT_NULL_VIOLATION"),
    ({"code": "a"}, "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"),
    ({"guests": 0}, "VALIDATION_CHECK_VIOLATION"),
    ({"guests": "many"}, "VALIDATION_INVALID_INPUT"),
]


class Hotel:
    def __init__(self, approvals_client: ApprovalsClient) -> None:
        self.client = approvals_client
        self.path = f"/v1/{approvals_client.app}"
        self.owner = approvals_client.baobab.owner

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Calls with the owner's key, which need not ask, and returns the answer."""
        response = await self.client.ask(method, self.path + path, self.owner, body)
        assert response.status_code < 300, response.text
        return response.json()

    async def propose(self, path: str, body: Any) -> Any:
        """Calls with the key that must ask, and returns the response."""
        return await self.client.ask("POST", self.path + path, body=body)

    async def list_approvals(self) -> list[Any]:
        answer = await self.client.ask("GET", "/v1/approvals", self.owner)
        approvals: list[Any] = answer.json()["approvals"]
        return approvals


@pytest.fixture
async def hotel(approvals_client: ApprovalsClient) -> Hotel:
    new_hotel = Hotel(approvals_client)
    await new_hotel.ask("POST", "/schema/apply", {"schema": {"tables": _TABLES}})
    await new_hotel.ask("POST", "/rooms", [{"id": 1, "name": "Blue"}, {"id": 2, "name": "Red"}])
    await new_hotel.ask("POST", "/visits", {"room_id": 1, "code": "a", "guests": 1})
    return new_hotel


@pytest.mark.parametrize(("mistake", "code"), _BROKEN)
async def test_an_insert_that_breaks_a_rule_of_its_table_asks_nobody(
    hotel: Hotel, mistake: dict[str, Any], code: str
) -> None:
    row = {**_GOOD, **mistake}
    batch = {"writes": [{"op": "insert", "table": "rooms", "values": {"id": 5}}]}
    batch["writes"].append({"op": "insert", "table": "visits", "values": row})
    for path, body in (("/visits", row), ("/visits?on_conflict=id", {"id": 7, **row}), ("/data-batch", batch)):
        response = await hotel.propose(path, body)
        assert response.json()["error"]["code"] == code, response.text
    assert await hotel.list_approvals() == []


async def test_a_batch_is_tried_as_a_whole(hotel: Hotel) -> None:
    writes = [
        {"op": "insert", "table": "rooms", "values": {"id": 3}},
        {"op": "insert", "table": "visits", "values": {**_GOOD, "room_id": 3}},
    ]
    approval_id = await hotel.client.parse_approval_id(await hotel.propose("/data-batch", {"writes": writes}))
    assert (await hotel.client.get_approval(approval_id))["would_fail"] is False
    assert (await hotel.client.approve_and_wait(approval_id))["status"] == "executed"


async def test_an_insert_that_would_fail_by_now_is_not_approved(hotel: Hotel) -> None:
    approval_id = await hotel.client.parse_approval_id(await hotel.propose("/visits", {**_GOOD, "room_id": 2}))
    assert (await hotel.client.get_approval(approval_id))["would_fail"] is False
    await hotel.ask("DELETE", "/rooms/2")
    detail = await hotel.client.get_approval(approval_id)
    assert detail["would_fail"] is True
    assert detail["preview"].startswith("It would fail now: ")
    refusal = await hotel.client.decide(approval_id)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "APPROVAL_WOULD_FAIL")
    assert refusal.json()["error"]["details"] == {"code": "VALIDATION_FOREIGN_KEY_VIOLATION"}
    approval = await hotel.client.approve_and_wait(approval_id, even_if_failing=True)
    assert (approval["status"], approval["error"]["code"]) == ("failed", "VALIDATION_FOREIGN_KEY_VIOLATION")


async def test_an_import_that_would_stop_asks_nobody(hotel: Hotel) -> None:
    headers = {**hotel.client.agent, "content-type": "text/csv"}
    for room, status in ((9, 400), (1, 428)):
        arguments = {"app_id": hotel.client.app, "table": "visits", "content": f"room_id,code,guests\n{room},c,1\n"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        message["params"] = {"name": "call_tool", "arguments": {"name": "data_import", "arguments": arguments}}
        accept = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        answer = await hotel.client.baobab.client.post("/mcp", json=message, headers={**headers, **accept})
        assert ("DATA_IMPORT_STOPPED" in answer.text) is (status == 400), answer.text
        assert ("APPROVAL_REQUIRED" in answer.text) is (status == 428), answer.text
    assert len(await hotel.list_approvals()) == 1
    assert len(await hotel.ask("GET", "/visits")) == 1


async def test_what_was_tried_leaves_no_trace(hotel: Hotel) -> None:
    changes = await hotel.ask("GET", "/data-changes")
    approval_id = await hotel.client.parse_approval_id(await hotel.propose("/visits", [_GOOD, {**_GOOD, "code": "c"}]))
    for _ in range(3):
        assert (await hotel.client.get_approval(approval_id))["would_fail"] is False
    await hotel.propose("/visits", {**_GOOD, "guests": 0})
    assert await hotel.ask("GET", "/data-changes") == changes
    row = await hotel.ask("POST", "/visits", {**_GOOD, "code": "d"})
    assert row["id"] == 2, "a serial number that was tried is not used up"
    assert (await hotel.client.approve_and_wait(approval_id))["status"] == "executed"
    assert [row["id"] for row in await hotel.ask("GET", "/visits?order=id.asc")] == [1, 2, 3, 4]


async def test_what_a_waiting_call_would_leave_out_is_said_before_and_after(hotel: Hotel) -> None:
    response = await hotel.propose("/visits", {**_GOOD, "gests": 3})
    warning = "`visits` has no column `gests`, so what you sent for it was left out. Did you mean `guests`?"
    assert response.json()["error"]["details"]["warnings"] == [warning]
    approval_id = await hotel.client.parse_approval_id(response)
    assert (await hotel.client.get_approval(approval_id))["approval"]["warnings"] == [warning]
    assert (await hotel.client.approve_and_wait(approval_id))["warnings"] == [warning]


async def _read_undo_days(hotel: Hotel, path: str, body: Any) -> int | None:
    approval_id = await hotel.client.parse_approval_id(await hotel.propose(path, body))
    approval = (await hotel.client.get_approval(approval_id))["approval"]
    assert (approval["undo"] == "possible") is (approval["undo_days"] is not None)
    [short_approval] = [each for each in await hotel.list_approvals() if each["id"] == approval_id]
    assert (short_approval["undo"], short_approval["undo_days"]) == ("unknown", None), "a list does not try the call"
    days: int | None = approval["undo_days"]
    return days


async def test_what_is_not_tried_promises_no_undo_and_denies_none(hotel: Hotel) -> None:
    schema = {"tables": {**_TABLES, "more": {"columns": {"text": "text"}}}}
    approval_id = await hotel.client.parse_approval_id(await hotel.propose("/schema/apply", {"schema": schema}))
    approval = (await hotel.client.get_approval(approval_id))["approval"]
    assert (approval["undo"], approval["undo_days"]) == ("unknown", None)


async def test_undo_is_promised_only_for_what_can_be_undone(hotel: Hotel, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = {"notes": {"columns": {"text": {"type": "text"}}}}
    await hotel.ask("POST", "/schema/apply", {"schema": {"tables": {**_TABLES, **notes}}})
    rows = [{**_GOOD, "code": code} for code in "cdef"]
    assert await _read_undo_days(hotel, "/visits", rows) == 7
    assert await _read_undo_days(hotel, "/notes", {"text": "a"}) is None, "rows without a key cannot be told apart"
    monkeypatch.setattr(change_log, "MOST_CHANGES", 3)
    assert await _read_undo_days(hotel, "/visits", [*rows, {**_GOOD, "code": "g"}]) is None
    assert await _read_undo_days(hotel, "/visits", rows[:3]) == 7
    options = hotel.client.baobab.application.services.options
    most_bytes = options.undo_bytes
    object.__setattr__(options, "undo_bytes", 500)
    try:
        assert await _read_undo_days(hotel, "/visits", rows[1:]) is None, "the log does not hold as much"
        assert await _read_undo_days(hotel, "/visits", rows[3]) == 7
    finally:
        object.__setattr__(options, "undo_bytes", most_bytes)
