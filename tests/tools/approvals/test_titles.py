"""The title of a call says what would come of it, and quotes all that whoever asks for it chose."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.tools.approvals.conftest import ApprovalsClient

ORDERS: dict[str, Any] = {"id": {"type": "integer", "primaryKey": True}, "status": {"type": "text"}}
TEXT_ORDERS: dict[str, Any] = {"id": {"type": "text", "primaryKey": True}, "status": {"type": "text"}}


async def read_title(client: ApprovalsClient, method: str, path: str, body: object = None) -> str:
    answer = await client.ask(method, f"/v1/{client.app}/{path}", body=body)
    title: str = (await client.get_approval(await client.parse_approval_id(answer)))["approval"]["title"]
    return title


async def create_orders(client: ApprovalsClient) -> None:
    owner, schema = client.baobab.owner, {"tables": {"orders": {"columns": ORDERS}}}
    await client.ask("POST", f"/v1/{client.app}/schema/apply", owner, {"schema": schema})
    await client.ask("POST", f"/v1/{client.app}/orders", owner, {"id": 1, "status": "old"})


@pytest.mark.parametrize(
    ("method", "path", "body", "title"),
    [
        ("PUT", "kv/bread", {"value": 1}, 'Store a value under the key "bread"'),
        ("POST", "kv/visits/incr", {"by": 5}, 'Raise the counter "visits" by 5'),
        ("POST", "kv/_batch", {"ops": [{"op": "set", "key": "a", "value": 1}, {"op": "del", "key": "there"}]},
         'Delete the key "there", store the key "a"'),
        ("POST", "kv/_batch", {"ops": [{"op": "set", "key": key, "value": 1} for key in "abcde"]},
         'Store the keys "a", "b", "c" and 2 more'),
        ("DELETE", "kv/there", None, 'Delete the key "there"'),
        ("POST", "orders", [{"id": 7}, {"id": 8}], 'Insert 2 rows in orders'),
        ("POST", "orders?on_conflict=id", {"id": 1}, 'Insert or change 1 row in orders'),
        ("PATCH", "orders/1", {"status": "paid"}, 'Change status of "old" in orders'),
        ("PATCH", "orders?status=eq.old&id=gt.0", {"status": "paid"},
         'Change status of the rows in orders that match "status=eq.old&id=gt.0"'),
        ("DELETE", "orders/1", None, 'Delete the row "1" from orders'),
        ("DELETE", "orders?status=eq.old", None, 'Delete the rows from orders that match "status=eq.old"'),
        ("POST", "data-batch",
         {"writes": [{"op": "insert", "table": "orders", "values": [{"id": 7}, {"id": 8}]},
                     {"op": "insert", "table": "orders", "values": {"id": 9}},
                     {"op": "delete", "table": "orders", "where": {"status": "eq.old"}}]},
         'Delete rows from orders, insert 3 rows in orders'),
    ],
)  # fmt: skip
async def test_the_title_of_a_write_says_what_it_does(
    approvals_client: ApprovalsClient, method: str, path: str, body: object, title: str
) -> None:
    app, owner = approvals_client.app, approvals_client.baobab.owner
    await create_orders(approvals_client)
    await approvals_client.ask("PUT", f"/v1/{app}/kv/there", owner, {"value": 1})
    assert await read_title(approvals_client, method, path, body) == title


async def test_what_a_proposer_chose_cannot_leave_its_quotes(approvals_client: ApprovalsClient) -> None:
    forged_text = 'a" for nobody. Approved by the owner: "b\u202e'
    await create_orders(approvals_client)
    path = f"orders?status=eq.{quote(forged_text)}"
    title = await read_title(approvals_client, "PATCH", path, {"status": "paid"})
    escaped_text = 'status=eq.a\\" for nobody. Approved by the owner: \\"b\\u202e'
    assert title == f'Change status of the rows in orders that match "{escaped_text}"'
    ops = [{"op": "set", "key": '"' * 200, "value": 1}]
    title = await read_title(approvals_client, "POST", "kv/_batch", {"ops": ops})
    assert title == 'Store the key "' + '\\"' * 100 + '…"'


@pytest.mark.parametrize(
    ("method", "path", "body", "title"),
    [
        ("DELETE", f"orders?status=eq.{quote('old. Approved by Mira')}", None,
         "Delete the rows from orders that match a filter"),
        ("DELETE", f"orders/{quote('nothing, see below')}", None, "Delete one row from orders"),
        ("DELETE", f"kv/{quote('nothing at all')}", None, "Delete one key"),
        ("POST", "kv/_batch", {"ops": [{"op": "del", "key": "nothing at all"}, {"op": "del", "key": "b"}]},
         "Delete 2 keys"),
        ("POST", "kv/_batch", {"ops": [{"op": "del", "key": "b"}, {"op": "set", "key": "no key", "value": 1}]},
         'Delete the key "b", store one key'),
    ],
)  # fmt: skip
async def test_the_title_of_a_deletion_holds_no_free_text(
    approvals_client: ApprovalsClient, method: str, path: str, body: object, title: str
) -> None:
    owner, schema = approvals_client.baobab.owner, {"tables": {"orders": {"columns": TEXT_ORDERS}}}
    await approvals_client.ask("POST", f"/v1/{approvals_client.app}/schema/apply", owner, {"schema": schema})
    row = {"id": "nothing, see below", "status": "old. Approved by Mira"}
    await approvals_client.ask("POST", f"/v1/{approvals_client.app}/orders", owner, row)
    for key in ("nothing%20at%20all", "b"):
        await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/{key}", owner, {"value": 1})
    assert await read_title(approvals_client, method, path, body) == title


async def test_a_row_is_named_by_its_first_short_text_which_is_quoted(approvals_client: ApprovalsClient) -> None:
    columns: dict[str, Any] = {
        "id": {"type": "integer", "primaryKey": True},
        "customer_id": {"type": "text"},
        "subject": {"type": "text"},
        "status": {"type": "text"},
    }
    owner, app = approvals_client.baobab.owner, approvals_client.app
    schema = {"tables": {"tickets": {"columns": columns}}}
    await approvals_client.ask("POST", f"/v1/{app}/schema/apply", owner, {"schema": schema})
    subject = 'Cracked shade" of nobody.\nApproved \u202e by Mira and the whole of the team of our shop'
    row = {"id": 1, "customer_id": "c-1", "subject": subject, "status": "open"}
    await approvals_client.ask("POST", f"/v1/{app}/tickets", owner, row)
    answer = await approvals_client.ask("PATCH", f"/v1/{app}/tickets/1", body={"status": "done", "customer_id": "c-2"})
    approval = (await approvals_client.get_approval(await approvals_client.parse_approval_id(answer)))["approval"]
    label = 'Cracked shade\\" of nobody. Approved \\u202e by Mira and the whole…'
    assert approval["title"] == f'Change status and customer_id of "{label}" in tickets'
    assert [part["own"] for part in approval["title_parts"]] == [True, False, True]
    assert "".join(part["text"] for part in approval["title_parts"]) == approval["title"]


async def test_a_proposer_who_is_told_the_summary_is_told_no_label(approvals_client: ApprovalsClient) -> None:
    await create_orders(approvals_client)
    answer = await approvals_client.ask("PATCH", f"/v1/{approvals_client.app}/orders/1", body={"status": "a new text"})
    summary = answer.json()["error"]["details"]["summary"]
    assert summary.splitlines()[0] == 'Change status of the row "1" in orders.'
    approval = (await approvals_client.get_approval(await approvals_client.parse_approval_id(answer)))["approval"]
    assert approval["excerpt"] == "a new text"


async def test_the_title_stays_when_the_arguments_are_gone(approvals_client: ApprovalsClient) -> None:
    answer = await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/bread", body={"value": 1})
    approval_id = await approvals_client.parse_approval_id(answer)
    await approvals_client.ask("POST", f"/v1/approvals/{approval_id}/reject", approvals_client.person.headers, {})
    approval = (await approvals_client.get_approval(approval_id))["approval"]
    assert (approval["status"], approval["title"]) == ("rejected", 'Store a value under the key "bread"')
    assert not [line for line in approval["summary"].splitlines() if "outcome" in line]
