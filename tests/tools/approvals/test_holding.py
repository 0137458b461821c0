"""Decisions in the console: each can be taken back for ten seconds, by the server's clock, and then counts once."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from baobab.tools.approvals.inbox.tables import held_decisions
from tests.http.console.test_console import find_csrf, sign_in
from tests.jobs import run_due_jobs
from tests.people import create_person
from tests.tools.approvals.conftest import ApprovalsClient, Headers


@dataclass
class Browser:
    """A person at the console."""

    client: ApprovalsClient
    headers: Headers

    async def open(self, path: str = "") -> httpx.Response:
        page = await self.client.baobab.client.get(f"/console{path}", headers=self.headers)
        assert page.status_code == 200, page.text
        return page

    async def send(self, path: str, **fields: str) -> httpx.Response:
        form = {"csrf": find_csrf(await self.open()), **fields}
        return await self.client.baobab.client.post(f"/console{path}", data=form, headers=self.headers)

    async def decide(self, approval_id: str, word: str = "approve", **fields: str) -> httpx.Response:
        return await self.send(f"/approvals/{approval_id}/{word}", **fields)

    async def list_held(self) -> list[str]:
        """The ids of the decisions that the toast offers to take back."""
        page = await self.open()
        parts = page.text.split('name="held" value="')[1:]
        return [held_id for part in parts[:1] for held_id in part.partition('"')[0].split()]

    async def take_back(self) -> httpx.Response:
        return await self.send("/approvals/take-back", held=" ".join(await self.list_held()))


async def open_browser(client: ApprovalsClient, by: Headers | None = None) -> Browser:
    key, _ = await client.create_key(by or client.person.headers, organization_id=client.organisation)
    return Browser(client, await sign_in(client.baobab, key["authorization"].removeprefix("Bearer ")))


@pytest.fixture
async def browser(approvals_client: ApprovalsClient) -> Browser:
    return await open_browser(approvals_client)


async def read_status(client: ApprovalsClient, approval_id: str) -> str:
    return str((await client.get_approval(approval_id, client.baobab.owner))["approval"]["status"])


async def pass_time(client: ApprovalsClient, seconds: float) -> None:
    client.clock.advance(seconds)
    await run_due_jobs(client.baobab.application)


async def test_a_decision_counts_after_ten_seconds_and_once(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    assert (await browser.decide(approval_id)).status_code == 303
    await pass_time(approvals_client, 9.5)
    assert await read_status(approvals_client, approval_id) == "pending"
    await pass_time(approvals_client, 0.5)
    assert await read_status(approvals_client, approval_id) == "executed"
    await pass_time(approvals_client, 600)
    assert await approvals_client.get_counter() == 1
    approval = (await approvals_client.get_approval(approval_id))["approval"]
    assert approval["decided_by"] == approvals_client.person.id


async def test_a_denial_is_held_too_and_gives_its_reason(approvals_client: ApprovalsClient, browser: Browser) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id, "reject", reason="Not on a Friday.")
    assert await read_status(approvals_client, approval_id) == "pending"
    await pass_time(approvals_client, 10)
    approval = (await approvals_client.get_approval(approval_id))["approval"]
    assert (approval["status"], approval["reason"]) == ("rejected", "Not on a Friday.")


async def test_what_is_taken_back_waits_as_before_and_can_be_decided_anew(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    before = (await approvals_client.get_approval(approval_id))["approval"]
    await browser.decide(approval_id)
    assert f'id="{approval_id}"' not in (await browser.open()).text
    approvals_client.clock.advance(9)
    assert (await browser.take_back()).headers["location"] == f"/console/approvals/{approval_id}?taken-back=1"
    await pass_time(approvals_client, 60)
    assert (await approvals_client.get_approval(approval_id))["approval"] == before
    assert f'id="{approval_id}"' in (await browser.open()).text
    await browser.decide(approval_id, "reject")
    await pass_time(approvals_client, 10)
    assert await read_status(approvals_client, approval_id) == "rejected"


async def test_a_decision_that_counts_is_not_taken_back_and_the_page_of_the_call_says_what_happened(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id)
    (held_id,) = await browser.list_held()
    await pass_time(approvals_client, 10)
    response = await browser.send("/approvals/take-back", held=held_id)
    assert response.headers["location"] == f"/console/approvals/{approval_id}?too-late=1"
    assert await read_status(approvals_client, approval_id) == "executed"


async def test_nobody_takes_back_what_somebody_else_has_decided(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id)
    (held_id,) = await browser.list_held()
    other = await create_person(approvals_client.baobab, "bob", role="admin")
    await (await open_browser(approvals_client, other.headers)).send("/approvals/take-back", held=held_id)
    await pass_time(approvals_client, 10)
    assert await read_status(approvals_client, approval_id) == "executed"


@pytest.mark.parametrize(("word", "status"), [("approve", "executed"), ("reject", "rejected")])
async def test_a_decision_over_rest_meanwhile_counts_first_and_the_held_one_says_so(
    approvals_client: ApprovalsClient, browser: Browser, word: str, status: str
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id, "reject" if word == "approve" else "approve", reason="mine")
    response = await approvals_client.decide(approval_id, word, by=approvals_client.baobab.owner)
    assert response.status_code == 200
    await pass_time(approvals_client, 0)
    assert await read_status(approvals_client, approval_id) == status
    assert "Somebody else decided first" in (await browser.open()).text
    await pass_time(approvals_client, 10)
    assert await read_status(approvals_client, approval_id) == status
    assert await approvals_client.get_counter() == (word == "approve")


async def test_of_two_people_the_first_decision_counts(approvals_client: ApprovalsClient, browser: Browser) -> None:
    other = await create_person(approvals_client.baobab, "bob", role="admin")
    other_browser = await open_browser(approvals_client, other.headers)
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id, "reject", reason="first")
    approvals_client.clock.advance(3)
    await other_browser.decide(approval_id)
    await pass_time(approvals_client, 7)
    assert await read_status(approvals_client, approval_id) == "rejected"
    assert "Somebody else decided first" in (await other_browser.open()).text
    await pass_time(approvals_client, 3)
    assert await read_status(approvals_client, approval_id) == "rejected"


async def test_whoever_has_left_when_the_decision_is_due_does_not_decide_and_the_call_goes_on_waiting(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id)
    path = f"/v1/organizations/{approvals_client.organisation}/members/{approvals_client.person.id}"
    response = await approvals_client.ask("DELETE", path, approvals_client.baobab.owner)
    assert response.status_code == 200, response.text
    await pass_time(approvals_client, 10)
    assert await read_status(approvals_client, approval_id) == "pending"


async def test_a_second_press_while_a_decision_is_held_changes_nothing(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id)
    again = await browser.decide(approval_id, "reject")
    assert (again.status_code, "You have decided about this call a moment ago" in again.text) == (409, True)
    await pass_time(approvals_client, 10)
    assert await read_status(approvals_client, approval_id) == "executed"


async def test_an_approval_that_deletes_is_confirmed_and_counts_at_once(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/a", approvals_client.baobab.owner, {"value": 1})
    refusal = await approvals_client.ask("DELETE", f"/v1/{approvals_client.app}/kv/a")
    approval_id = await approvals_client.parse_approval_id(refusal)
    page = await browser.decide(approval_id)
    assert (page.status_code, "This cannot be taken back." in page.text) == (200, True)
    assert "Delete 1 key" in page.text
    await pass_time(approvals_client, 60)
    assert await read_status(approvals_client, approval_id) == "pending"
    response = await browser.decide(approval_id, confirmed="1")
    assert response.headers["location"] == f"/console/approvals/{approval_id}?decided=1"
    await pass_time(approvals_client, 0)
    assert await read_status(approvals_client, approval_id) == "executed"


async def test_a_call_that_expires_within_a_minute_is_decided_at_once(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    approvals_client.clock.advance(24 * 3600 - 5)
    late_browser = await open_browser(approvals_client, approvals_client.baobab.owner)
    await late_browser.decide(approval_id)
    await pass_time(approvals_client, 0)
    assert await read_status(approvals_client, approval_id) == "executed"


async def test_a_call_that_fails_when_its_decision_is_due_waits_again_and_says_why(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id)
    await approvals_client.ask(
        "PUT", f"/v1/{approvals_client.app}/kv/n", approvals_client.baobab.owner, {"value": "text"}
    )
    await pass_time(approvals_client, 10)
    assert await read_status(approvals_client, approval_id) == "pending"
    page = (await browser.open()).text
    assert "did not count" in page
    assert f"/console/approvals/{approval_id}" in page


async def test_an_attempt_after_a_crash_finds_the_decision_counted_or_makes_it_count(
    approvals_client: ApprovalsClient, browser: Browser
) -> None:
    services: Any = approvals_client.baobab.application.services
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await browser.decide(approval_id)
    (held_id,) = await browser.list_held()
    # As a server leaves it that was killed after the decision could not be taken back any more.
    async with services.database.writing() as connection:
        await connection.execute(update(held_decisions).where(held_decisions.c.id == held_id).values(state="due"))
    response = await browser.send("/approvals/take-back", held=held_id)
    assert response.headers["location"] == f"/console/approvals/{approval_id}?too-late=1"
    await pass_time(approvals_client, 10)
    assert await read_status(approvals_client, approval_id) == "executed"
    # As one that was killed after the decision counted, and before its job ended.
    unit = services.database.build_unit(write=True)
    await services.jobs.enqueue(unit, "approvals_count_held", {"held_id": held_id})
    await unit.commit()
    await pass_time(approvals_client, 0)
    assert await approvals_client.get_counter() == 1
