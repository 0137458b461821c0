"""The title of a call says what would come of it, and quotes all that whoever asks for it chose."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.tools.approvals.conftest import ApprovalsClient

ORDERS: dict[str, Any] = {"id": {"type": "integer", "primaryKey": True}, "status": {"type": "text"}}


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
        ("PUT", "kv/bread", {"value": 1}, 'Stores a value under the key "bread"'),
        ("POST", "kv/visits/incr", {"by": 5}, 'Raises the counter "visits" by 5'),
        ("POST", "kv/_batch", {"ops": [{"op": "set", "key": "a", "value": 1}, {"op": "del", "key": "there"}]},
         'Deletes the key "there", stores the key "a"'),
        ("POST", "kv/_batch", {"ops": [{"op": "set", "key": key, "value": 1} for key in "abcde"]},
         'Stores the keys "a", "b", "c" and 2 more'),
        ("DELETE", "kv/there", None, 'Deletes the key "there"'),
        ("POST", "orders", [{"id": 7}, {"id": 8}], 'Inserts 2 rows in "orders"'),
        ("POST", "orders?on_conflict=id", {"id": 1}, 'Inserts or changes 1 row in "orders"'),
        ("PATCH", "orders/1", {"status": "paid"}, 'Changes "status" of the row "1" in "orders"'),
        ("PATCH", "orders?status=eq.old&id=gt.0", {"status": "paid"},
         'Changes "status" of the rows in "orders" that match "status=eq.old&id=gt.0"'),
        ("DELETE", "orders/1", None, 'Deletes the row "1" from "orders"'),
        ("DELETE", "orders?status=eq.old", None, 'Deletes the rows from "orders" that match "status=eq.old"'),
        ("POST", "data-batch",
         {"writes": [{"op": "insert", "table": "orders", "values": [{"id": 7}, {"id": 8}]},
                     {"op": "insert", "table": "orders", "values": {"id": 9}},
                     {"op": "delete", "table": "orders", "where": {"status": "eq.old"}}]},
         'Deletes rows from "orders", inserts 3 rows in "orders"'),
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
    title = await read_title(approvals_client, "DELETE", path)
    escaped_text = 'status=eq.a\\" for nobody. Approved by the owner: \\"b\\u202e'
    assert title == f'Deletes the rows from "orders" that match "{escaped_text}"'
    ops = [{"op": "set", "key": '"' * 200, "value": 1}]
    title = await read_title(approvals_client, "POST", "kv/_batch", {"ops": ops})
    assert title == 'Stores the key "' + '\\"' * 100 + '…"'


async def test_the_title_stays_when_the_arguments_are_gone(approvals_client: ApprovalsClient) -> None:
    answer = await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/bread", body={"value": 1})
    approval_id = await approvals_client.parse_approval_id(answer)
    await approvals_client.ask("POST", f"/v1/approvals/{approval_id}/reject", approvals_client.person.headers, {})
    approval = (await approvals_client.get_approval(approval_id))["approval"]
    assert (approval["status"], approval["title"]) == ("rejected", 'Stores a value under the key "bread"')
    assert not [line for line in approval["summary"].splitlines() if "outcome" in line]
