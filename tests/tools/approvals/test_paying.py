"""Who pays for a call that was approved: the day's budget of the agent whose run it belongs to, once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.providers import build_own_server
from baobab.storage.sql.database import Unit
from baobab.tools.approvals.executor import JOB
from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.jobs import JobLost
from tests.clock import FixedClock
from tests.conftest import ADDRESS, Baobab
from tests.installation import open_installation
from tests.jobs import TIMEOUT_SECONDS, jobs, run_due_jobs
from tests.people import get_first_organisation
from tests.runtime.gateway.upstream import Upstream, start_upstream
from tests.tools.agents.conftest import build_graph
from tests.tools.ai.media.conftest import IMAGE
from tests.tools.ai.media.studio import Studio, start_studio
from tests.tools.ai.meetings.conftest import MEETING
from tests.tools.ai.meetings.fake_provider import KEY
from tests.tools.ai.meetings.fake_recall import SECRET, FakeRecall, start_recall
from tests.tools.people.conftest import LIVE
from tests.tools.people.fakes import Fake, start_fake

USD = 10**9
CALLS: dict[str, dict[str, Any]] = {
    "people_search_person": {"query": "engineers in Berlin"},
    "people_profile": {"networkProfileUrl": "https://www.linkedin.com/in/person-1"},
    "people_email_queue": {"networkProfileUrl": "https://www.linkedin.com/in/person-1"},
    "ai_chat": {"model": "lab/ok", "messages": [{"role": "user", "content": "Hello"}]},
    "images_generate": {"model": IMAGE, "prompt": "A baobab at dusk"},
    "meetings_start": {"meetingUrl": MEETING},
}
AT_ONCE = {"people_search_person": 0.0084, "people_profile": 0.04, "people_email_queue": 0.06, "ai_chat": 0.018}
"""What the calls cost in dollars whose charge is part of the call; the others hold it, and are charged later."""


@dataclass
class Till:
    """An app with an agent whose only step is a paid call, and the providers that would be paid."""

    baobab: Baobab
    app: str
    clock: FixedClock
    people: Fake
    models: Upstream
    studio: Studio
    recall: FakeRecall

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        answer = await self.baobab.client.request(method, path, json=body or None, headers=self.baobab.owner)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def propose(self, tool: str, budget_usd: float) -> tuple[str, str]:
        """An agent's run that waits for the approval of its paid call: its id, and the approval's."""
        node = {"type": "tool", "tool_ref": {"source": "builtin", "name": tool}, "args_template": CALLS[tool]}
        spec = build_graph({"pay": node, "done": {"type": "end"}}, ("pay", "done"), tools={"builtin": [tool]})
        agent = {"name": tool, "graph_spec": spec, "daily_budget_usd": budget_usd}
        await self.ask("POST", f"/v1/{self.app}/agents", **agent)
        run_id = (await self.ask("POST", f"/v1/{self.app}/agents/{tool}/runs", input={}))["run_id"]
        await run_due_jobs(self.baobab.application)
        assert (await self.read_run(tool, run_id))["status"] == "paused"
        [approval] = (await self.ask("GET", "/v1/approvals?status=pending"))["approvals"]
        return run_id, approval["id"]

    async def approve(self, approval_id: str) -> Any:
        await self.ask("POST", f"/v1/approvals/{approval_id}/approve")
        return await self.read_outcome(approval_id)

    async def read_outcome(self, approval_id: str) -> Any:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                await run_due_jobs(self.baobab.application)
                approval = (await self.ask("GET", f"/v1/approvals/{approval_id}"))["approval"]
                if approval["status"] not in ("pending", "approved"):
                    return approval

    async def read_run(self, tool: str, run_id: str) -> Any:
        return (await self.ask("GET", f"/v1/{self.app}/agents/{tool}/runs/{run_id}"))["run"]

    async def read_budget(self, tool: str) -> tuple[int, int]:
        """What the agent of a tool has spent today, and what is held for it, in nano-dollars."""
        agent = (await self.ask("GET", f"/v1/{self.app}/agents/{tool}"))["agent"]
        credits_: Any = self.baobab.application.services.credits
        budget = await credits_.agent_budget(await get_first_organisation(self.baobab), agent["id"])
        return (budget.spent_nanos, budget.reserved_nanos) if budget else (0, 0)

    async def read_spent(self) -> int:
        """What the organisation was charged, in nano-dollars."""
        credits_: Any = self.baobab.application.services.credits
        used_nanos: int = (await credits_.account(await get_first_organisation(self.baobab))).allowance_used
        return used_nanos

    async def die_after_paying(self, approval_id: str) -> None:
        """Has an approved call made by a server that dies when it is paid, and before that is written down."""
        now, services = self.clock.now(), self.baobab.application.services
        decision = {"status": "approved", "decided_at": now, "decided_by": "somebody"}
        job = {"id": f"approval:{approval_id}", "kind": JOB, "arguments": {"approval_id": approval_id}, "epoch": 1}
        lease = {"held_by": "the dead", "due_at": now + timedelta(seconds=10), "attempts": 1, "created_at": now}
        async with services.database.writing() as connection:
            await connection.execute(update(approvals).where(approvals.c.id == approval_id).values(**decision))
            await connection.execute(insert(jobs), {**job, **lease})
        dying: Any = DyingJob(services, self.baobab.application.registry)
        with pytest.raises(JobLost):
            await service_of(services).executor.execute(dying, approval_id)

    @property
    def requests(self) -> int:
        """How often a provider was asked for something that it wants to be paid for."""
        of_people, of_models = len(self.people.requests), len(self.models.requests)
        return of_people + of_models + len(self.studio.submissions) + len(self.recall.creations)


@dataclass
class DyingJob:
    """The job of an attempt that ends where the call has been made."""

    services: Any
    registry: Any
    attempt: int = 1

    async def hold(self, unit: Unit, *, last: bool = False) -> None:
        raise JobLost


@pytest.fixture
async def till(tmp_path: Path) -> AsyncIterator[Till]:
    clock = FixedClock()
    async with contextlib.AsyncExitStack() as stack:
        people = await stack.enter_async_context(start_fake())
        models = await stack.enter_async_context(start_upstream())
        studio = await stack.enter_async_context(start_studio())
        recall = await stack.enter_async_context(start_recall(clock))
        variables = {
            **LIVE,
            "BAOBAB_PLAN": "playground",
            "BAOBAB_PEOPLE_PRIMARY_URL": f"{people.url}/api/v2",
            "BAOBAB_PEOPLE_SECONDARY_URL": people.url,
            "BAOBAB_MEETINGS_PROVIDER": "recall",
            "BAOBAB_MEETINGS_KEY": KEY,
            "BAOBAB_MEETINGS_URL": recall.url,
            "BAOBAB_MEETINGS_WEBHOOK_SECRET": SECRET,
            "BAOBAB_AI_PROBE": "false",
            "BAOBAB_BASE_URL": ADDRESS,
        }
        environment = {"OPENAI_API_KEY": "sk-vendor-0123456789", "OPENAI_BASE_URL": f"{studio.url}/v1"}
        baobab = await stack.enter_async_context(
            open_installation(tmp_path / "data", variables, clock=clock, environment=environment)
        )
        price = Price(prompt=10**12, completion=10**12)
        names = {"id": "lab/ok", "name": "ok", "litellm": "lab/ok", "provider": "lab"}
        features = frozenset(("streaming", "tools"))
        model = Model(**names, modality="chat", price=price, context_window=8192, max_output=64, features=features)
        gateway: Any = baobab.application.services.part(Gateway)
        gateway.add_provider(build_own_server("lab", f"{models.url}/v1", "key"), [model])
        credits_: Any = baobab.application.services.credits
        await credits_.set_terms(await get_first_organisation(baobab), allowance=100 * USD)
        yield Till(baobab, await baobab.create_app(), clock, people, models, studio, recall)


async def test_approved_calls_count_against_the_budgets_of_their_agents(till: Till) -> None:
    for tool in CALLS:
        before = await till.read_spent()
        run_id, approval_id = await till.propose(tool, budget_usd=5)
        approval = await till.approve(approval_id)
        assert approval["status"] == "executed", (tool, approval["error"])
        run, (cost, reservation) = await till.read_run(tool, run_id), await till.read_budget(tool)
        assert run["status"] == "completed", (tool, run["error"])
        assert await till.read_spent() - before == cost, tool
        if tool in AT_ONCE:
            assert (cost, reservation) == (round(AT_ONCE[tool] * USD), 0), tool
            assert run["usage"]["cost_usd"] == pytest.approx(AT_ONCE[tool]), tool
        else:
            assert cost == 0 < reservation, tool


async def test_calls_that_are_made_again_after_a_crash_are_paid_once(till: Till) -> None:
    for tool in CALLS:
        before = await till.read_spent()
        _, approval_id = await till.propose(tool, budget_usd=5)
        await till.die_after_paying(approval_id)
        paid_budget = await till.read_budget(tool)
        till.clock.advance(11)
        approval = await till.read_outcome(approval_id)
        assert approval["status"] == "executed", (tool, approval["error"])
        cost, reservation = await till.read_budget(tool)
        assert await till.read_spent() - before == cost, tool
        assert (cost, reservation) == paid_budget, tool
        assert cost == round(AT_ONCE[tool] * USD) if tool in AT_ONCE else reservation, tool


async def test_approved_calls_that_no_budget_allows_fail_like_any_other_and_cost_nothing(till: Till) -> None:
    for tool in CALLS:
        run_id, approval_id = await till.propose(tool, budget_usd=0.001)
        approval = await till.approve(approval_id)
        assert (approval["status"], approval["error"]["code"]) == ("failed", "BUDGET_EXHAUSTED"), tool
        assert approval["error"]["details"]["budget"]["subject"] == "agent", tool
        run = await till.read_run(tool, run_id)
        assert (run["status"], run["error"]["details"]["code"]) == ("failed", "BUDGET_EXHAUSTED"), tool
        assert await till.read_budget(tool) == (0, 0), tool
    assert await till.read_spent() == 0
    assert till.requests == 0
