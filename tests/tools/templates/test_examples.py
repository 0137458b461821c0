"""The examples are deployed, cloned and used, as their pages say."""

import importlib.util
from pathlib import Path
from typing import Any

from tests.jobs import run_due_jobs
from tests.tools.templates.conftest import Gallery

EXAMPLES = Path(__file__).parents[3] / "examples"
CUSTOMER = "11111111-1111-4111-8111-111111111111"


def load_deployment() -> Any:
    spec = importlib.util.spec_from_file_location("deploy", EXAMPLES / "deploy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def deploy(gallery: Gallery, name: str) -> str:
    requests, answer = load_deployment().deploy(EXAMPLES / name, name), None
    while True:
        try:
            method, path, body = requests.send(answer)
        except StopIteration as end:
            app: str = end.value
            return app
        if isinstance(body, bytes):
            response = await gallery.baobab.client.request(method, path, content=body)
            assert response.is_success, response.text
            answer = None
        else:
            answer = await gallery.do(method, path, body)


async def test_the_support_desk_is_cloned_and_a_refund_is_decided_in_the_clone(gallery: Gallery) -> None:
    template = await deploy(gallery, "support-desk")
    await run_due_jobs(gallery.baobab.application)
    [item] = (await gallery.do("GET", "/v1/templates?q=support", headers={}))["items"]
    assert (item["app_id"], item["schema_summary"]["table_count"]) == (template, 2)
    ada = gallery.ada.headers
    preflight = await gallery.do("GET", f"/v1/templates/{template}/clone-preflight", headers=ada)
    assert (preflight["secrets"], preflight["hosts"]) == ([], [])
    desk = await gallery.clone(template, name="my-desk")
    review = await gallery.do("GET", f"/v1/{desk}/clone-review", headers=ada)
    assert [(each["kind"], each["name"]) for each in review["abilities"] if not each["is_on"]] == [
        ("app_right", "desk")
    ]
    agent = await gallery.do("GET", f"/v1/{desk}/agents/desk", headers=ada)
    graph = agent.get("agent", agent)["graph_spec"]
    await gallery.do("PATCH", f"/v1/{desk}/agents/desk", {"status": "active", "graph_spec": graph}, ada)
    customer = await gallery.baobab.user_headers(desk, CUSTOMER)
    topics = await gallery.do("GET", f"/v1/{desk}/topics?order=slug", headers=customer)
    assert [topic["slug"] for topic in topics] == ["delivery", "returns"]
    ticket = {"customer": CUSTOMER, "topic": "returns", "text": "It is broken."}
    row = await gallery.do("POST", f"/v1/{desk}/tickets", ticket, customer)
    run = await gallery.do("POST", f"/v1/{desk}/agents/desk/runs", {"input": {"ticket": str(row["id"])}}, customer)
    await run_due_jobs(gallery.baobab.application)
    [waiting] = (await gallery.do("GET", "/v1/approvals?status=pending", headers=ada))["approvals"]
    await gallery.do("POST", f"/v1/approvals/{waiting['id']}/approve", {"data": {"amount": 20}}, ada)
    await run_due_jobs(gallery.baobab.application)
    state = await gallery.do("GET", f"/v1/{desk}/agents/desk/runs/{run['run_id']}", headers=customer)
    assert state["run"]["status"] == "completed", state
    [stored_ticket] = await gallery.do("GET", f"/v1/{desk}/tickets", headers=customer)
    assert stored_ticket["refunded"] == 20
    answer = await gallery.do("POST", f"/v1/{desk}/rag/collections/handbook/query", {"query": "refund"}, customer)
    assert "30 days" in str(answer)
