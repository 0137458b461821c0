"""The page on which an app's users with a role decide about calls."""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import ADDRESS, Baobab
from tests.jobs import run_due_jobs
from tests.tools.agents.conftest import build_graph

PASSWORD = "correct Horse 7!"
OWN = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}


@dataclass
class Desk:
    """An app whose customers ask, and whose staff decide."""

    baobab: Baobab
    app: str

    async def create_user(self, name: str, role: str = "user") -> dict[str, str]:
        """Returns the headers of the user over REST."""
        body = {"email": f"{name}@example.com", "password": PASSWORD}
        response = await self.baobab.client.post(f"/auth/{self.app}/signup", json=body)
        path = f"/v1/{self.app}/admin/auth/users/{response.json()['user']['id']}"
        await self.baobab.client.patch(path, json={"role": role}, headers=self.baobab.owner)
        tokens = (await self.baobab.client.post(f"/auth/{self.app}/login", json=body)).json()
        return {"authorization": f"Bearer {tokens['access_token']}"}

    async def ask(self, customer: dict[str, str], node: dict[str, Any], **run_input: Any) -> str:
        """A customer's run wants a call, which waits for staff. Returns the run's path."""
        end = {"type": "end", "output_template": "done"}
        tool = node["tool_ref"]["name"]
        graph = build_graph({"act": node, "end": end}, ("act", "end"), tools={"builtin": [tool]})
        body = {"name": f"desk-{tool.replace('_', '-')}", "graph_spec": graph, "visibility": "authenticated"}
        response = await self.baobab.client.post(f"/v1/{self.app}/agents", json=body, headers=self.baobab.owner)
        assert response.status_code == 201, response.text
        path = f"/v1/{self.app}/agents/{body['name']}/runs"
        response = await self.baobab.client.post(path, json={"input": run_input}, headers=customer)
        assert response.status_code == 201, response.text
        await run_due_jobs(self.baobab.application)
        return f"{path}/{response.json()['run_id']}"

    async def sign_in(self, name: str) -> dict[str, str]:
        """The headers of a browser in which a user has signed in on the page."""
        form = {"step": "password", "wish": "approvals", "email": f"{name}@example.com", "password": PASSWORD}
        answer = await self.baobab.client.post(f"/auth/{self.app}/login-page", data=form, headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "approvals"), answer.text
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        self.baobab.client.cookies.clear()
        return {**OWN, "cookie": cookie.partition(";")[0]}

    async def open(self, browser: dict[str, str], **query: str) -> Any:
        return await self.baobab.client.get(f"/auth/{self.app}/approvals", params=query, headers=browser)

    async def send(self, browser: dict[str, str], page: str, step: str, **fields: str) -> Any:
        hidden_fields = dict(re.findall(r'<input type="hidden" name="(csrf|call)" value="([^"]+)">', page))
        form = {**hidden_fields, "step": step, **fields}
        return await self.baobab.client.post(f"/auth/{self.app}/approvals", data=form, headers=browser)


def write_node(**more: Any) -> dict[str, Any]:
    template = {"key": "refund", "value": {"amount": "{{ input.amount }}", "order": "{{ input.order }}"}}
    ref = {"source": "builtin", "name": "kv_put"}
    approvers = {"role": "staff"}
    return {"type": "tool", "tool_ref": ref, "args_template": template, "run_as": "app", "approvers": approvers, **more}


@pytest.fixture
async def desk(baobab: Baobab) -> Desk:
    return Desk(baobab, await baobab.create_app())


async def find_call(desk: Desk, browser: dict[str, str]) -> str:
    (approval_id,) = re.findall(r'href="approvals\?call=(appr_\w+)"', (await desk.open(browser)).text)
    return str(approval_id)


async def test_a_user_with_the_role_approves_on_the_page_and_the_customer_does_not(desk: Desk) -> None:
    ada = await desk.create_user("ada")
    await desk.create_user("sam", "staff")
    run_path = await desk.ask(ada, write_node(), amount=40, order="A-7")
    customer = await desk.sign_in("ada")
    assert "Nothing waits for you" in (await desk.open(customer)).text
    staff = await desk.sign_in("sam")
    approval_id = await find_call(desk, staff)
    page = await desk.open(staff, call=approval_id)
    assert "A-7" in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    # Who may not decide about the call does not see it.
    assert (await desk.open(customer, call=approval_id)).status_code == 404
    answer = await desk.send(staff, page.text, "approve")
    assert (answer.status_code, answer.headers["location"]) == (303, "approvals?done=approved"), answer.text
    await run_due_jobs(desk.baobab.application)
    value = await desk.baobab.client.get(f"/v1/{desk.app}/kv/refund", headers=desk.baobab.owner)
    assert value.json() == {"value": {"amount": 40, "order": "A-7"}}
    assert (await desk.baobab.client.get(run_path, headers=ada)).json()["run"]["status"] == "completed"
    # Who comes later is told what was decided.
    late = await desk.send(staff, page.text, "deny", reason="no")
    assert "approved" in late.text
    assert (late.status_code, "already" in late.text) == (200, True)


async def test_staff_change_what_the_author_lets_them_and_nothing_else(desk: Desk) -> None:
    ada = await desk.create_user("ada")
    await desk.create_user("sam", "staff")
    await desk.ask(ada, write_node(edit=["value.amount"]), amount=40, order="A-7")
    staff = await desk.sign_in("sam")
    page = (await desk.open(staff, call=await find_call(desk, staff))).text
    fields = dict(
        re.findall(
            r'<input id="(answer-\d+)" name="answer-\d+" inputmode="decimal" autocomplete="off" value="([^"]*)">', page
        )
    )
    assert list(fields.values()) == ["40"]
    (amount,) = fields
    wrong = await desk.send(staff, page, "approve", **{amount: "forty"})
    assert (wrong.status_code, 'value="forty"' in wrong.text) == (400, True)
    assert "Type a number" in wrong.text
    answer = await desk.send(staff, page, "approve", **{amount: "25"})
    assert answer.status_code == 303, answer.text
    await run_due_jobs(desk.baobab.application)
    value = await desk.baobab.client.get(f"/v1/{desk.app}/kv/refund", headers=desk.baobab.owner)
    assert value.json() == {"value": {"amount": 25, "order": "A-7"}}


async def test_staff_learn_nothing_from_values_that_they_try(desk: Desk) -> None:
    columns = {"id": {"type": "integer", "primaryKey": True}, "code": {"type": "text", "unique": True}}
    base, owner = f"/v1/{desk.app}", desk.baobab.owner
    schema = {"schema": {"tables": {"codes": {"columns": columns}}}}
    for path, body in (("/schema/apply", schema), ("/codes", {"id": 1, "code": "secret"})):
        response = await desk.baobab.client.post(base + path, json=body, headers=owner)
        assert response.status_code < 300, response.text
    ada, sam = await desk.create_user("ada"), await desk.create_user("sam", "staff")
    template = {"table": "codes", "values": {"id": 2, "code": "{{ input.code }}"}}
    ref = {"source": "builtin", "name": "data_insert"}
    await desk.ask(ada, write_node(tool_ref=ref, args_template=template, edit=["values.code"]), code="free")
    approval_id = await find_call(desk, await desk.sign_in("sam"))
    path = f"/v1/approvals/{approval_id}/approve"
    edited_call = {"arguments": {"table": "codes", "values": {"id": 2, "code": "secret"}}}
    error = (await desk.baobab.client.post(path, json=edited_call, headers=sam)).json()["error"]
    assert (error["code"], error.get("details")) == ("APPROVAL_WOULD_FAIL", None)
    assert error["message"] == "The call would fail now, so it was not approved."
    # Who sees the table is told.
    error = (await desk.baobab.client.post(path, json=edited_call, headers=owner)).json()["error"]
    assert error["details"]["code"] == "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION", error


async def test_a_link_signs_nobody_out(desk: Desk) -> None:
    await desk.create_user("sam", "staff")
    staff = await desk.sign_in("sam")
    page = await desk.open(staff, flow="x", access_token="y", refresh_token="z")
    assert (page.status_code, page.headers.get("set-cookie")) == (200, None)
    assert "Requests that wait for you" in page.text
    stranger = await desk.open({}, flow="x")
    assert (stranger.status_code, stranger.headers["location"]) == (303, "login-page?wish=approvals")


async def test_staff_deny_with_a_reason_and_answer_questions(desk: Desk) -> None:
    ada = await desk.create_user("ada")
    await desk.create_user("sam", "staff")
    run_path = await desk.ask(ada, write_node(), amount=40, order="A-7")
    staff = await desk.sign_in("sam")
    page = (await desk.open(staff, call=await find_call(desk, staff))).text
    answer = await desk.send(staff, page, "deny", reason="Too much.")
    assert answer.headers["location"] == "approvals?done=rejected"
    await run_due_jobs(desk.baobab.application)
    assert (await desk.baobab.client.get(run_path, headers=ada)).json()["run"]["error"]["message"] == "Too much."
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    arguments = {"reason": "How much?", "answer_schema": schema}
    ref = {"source": "builtin", "name": "interrupt"}
    node = {"type": "tool", "tool_ref": ref, "args_template": arguments, "approvers": {"role": "staff"}}
    run_path = await desk.ask(ada, node)
    page = (await desk.open(staff, call=await find_call(desk, staff))).text
    assert "How much?" in page
    assert (await desk.send(staff, page, "approve", **{"answer-0": "12"})).status_code == 303
    await run_due_jobs(desk.baobab.application)
    assert (await desk.baobab.client.get(run_path, headers=ada)).json()["run"]["status"] == "completed"


async def test_forms_of_others_and_other_cookies_decide_nothing(desk: Desk) -> None:
    ada = await desk.create_user("ada")
    await desk.create_user("sam", "staff")
    await desk.ask(ada, write_node(), amount=40, order="A-7")
    staff = await desk.sign_in("sam")
    page = (await desk.open(staff, call=await find_call(desk, staff))).text
    foreign = {**staff, "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert (await desk.send(foreign, page, "approve")).status_code == 403
    assert (await desk.send(staff, page, "approve", csrf="0" * 64)).status_code == 403
    # The cookie opens neither the console nor REST, and no other app's page.
    for path in ("/console", f"/auth/{(other := await desk.baobab.create_app())}/approvals"):
        answer = await desk.baobab.client.get(path, headers=staff)
        assert answer.status_code == 303, (path, other)
    assert (await desk.baobab.client.get("/v1/approvals", headers=staff)).status_code == 401
    signed_out = await desk.send(staff, page, "sign-out")
    assert signed_out.headers["location"] == "login-page?wish=approvals"
    again = await desk.open(staff)
    assert (again.status_code, again.headers["location"]) == (303, "login-page?wish=approvals")
    sign_in = await desk.baobab.client.get(f"/auth/{desk.app}/login-page?wish=approvals")
    assert (sign_in.status_code, 'name="wish" value="approvals"' in sign_in.text) == (200, True)
