"""The journey of docs/integrations.md: an assistant reads a user's mail and drafts a reply, which the user approves."""

from typing import Any

from tests.tools.agents.conftest import build_graph
from tests.tools.integrations.conftest import Shop

_READ = {
    "type": "tool",
    "tool_ref": {"source": "builtin", "name": "integrations_read"},
    "args_template": {"toolName": "GMAIL_FETCH_EMAILS", "params": {"query": "is:unread"}},
    "output_key": "mails",
}
_DRAFT = {
    "type": "tool",
    "tool_ref": {"source": "builtin", "name": "integrations_execute"},
    "args_template": {
        "toolName": "GMAIL_CREATE_EMAIL_DRAFT",
        "params": {
            "recipient_email": "grace@kapok.example",
            "subject": "Re: {{ state.mails.data.messages.0.subject }}",
            "body": "Twenty seats are 400 EUR.",
        },
    },
}
ASSISTANT = build_graph(
    {"read": _READ, "draft": _DRAFT, "done": {"type": "end"}},
    ("read", "draft"),
    ("draft", "done"),
    tools={"builtin": ["integrations_read", "integrations_execute"]},
)


async def list_calls(shop: Shop) -> list[str]:
    """The tools that were called with the user's account."""
    calls = (await shop.ask("GET", "/calls", shop.user, 200))["calls"]
    return sorted(each["tool"] for each in calls if each["status"] == "succeeded")


async def test_an_assistant_reads_a_users_mail_and_drafts_a_reply_that_the_user_approves(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    client, owner, agents = shop.baobab.client, shop.baobab.owner, f"/v1/{shop.app}/agents"
    body = {"name": "assistant", "visibility": "authenticated", "graph_spec": ASSISTANT}
    answer = await client.post(agents, headers=owner, json=body)
    assert answer.status_code == 201, answer.text
    answer = await client.post(f"{agents}/assistant/runs", headers=shop.user, json={"input": {}})
    run_id = answer.json()["run_id"]
    await shop.run_jobs()

    async def read_run() -> Any:
        return (await client.get(f"{agents}/assistant/runs/{run_id}", headers=owner)).json()["run"]

    run = await read_run()
    # Whatever strangers have mailed taints the run.
    assert (run["status"], run["tainted"], run["error"]) == ("paused", True, None)
    assert await list_calls(shop) == ["GMAIL_FETCH_EMAILS"]
    [approval] = (await client.get("/v1/approvals?status=pending", headers=owner)).json()["approvals"]
    assert approval["effect"] == "external"
    assert "ada@mail.example" in approval["title"]
    assert approval["arguments"]["params"]["subject"] == "Re: Offer for spring"
    answer = await client.post(f"/v1/approvals/{approval['id']}/approve", headers=owner, json={})
    assert answer.status_code == 200, answer.text
    await shop.run_jobs()
    run = await read_run()
    assert (run["status"], run["error"]) == ("completed", None)
    assert await list_calls(shop) == ["GMAIL_CREATE_EMAIL_DRAFT", "GMAIL_FETCH_EMAILS"]
