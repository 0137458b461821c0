"""Proposals, decisions, time and outcomes in any order, against a dictionary that says what must come of it."""

import asyncio
import itertools
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.clock import FixedClock
from tests.installation import open_installation
from tests.people import create_person, get_first_organisation
from tests.tools.approvals.conftest import ApprovalsClient

DAY = 24 * 3600
steps, agents = st.sampled_from([1, 10]), st.sampled_from([0, 1])


@dataclass
class Expected:
    """The expected state of one call of one agent."""

    id: str
    status: str
    since: float
    result: int = 0


class Approving(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory()
        self.open: dict[tuple[int, int], Expected] = {}
        self.past: list[str] = []
        self.counter = 0

    @initialize()
    def begin(self) -> None:
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.clock = FixedClock()
        baobab = await self.stack.enter_async_context(open_installation(Path(self.folder.name), clock=self.clock))
        ada = await create_person(baobab, "ada", role="admin")
        self.approvals_client = ApprovalsClient(
            baobab, self.clock, await baobab.create_app(), await get_first_organisation(baobab), ada, {}, ""
        )
        self.agents = [(await self.approvals_client.create_key(approval="write"))[0] for _ in range(2)]

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    @rule(agent=agents, step=steps)
    def call(self, agent: int, step: int) -> None:
        answer = self.runner.run(self.approvals_client.raise_counter(self.agents[agent], step=step))
        expected_call = self.open.get((agent, step))
        if expected_call is not None and self.clock.time() - expected_call.since >= DAY:
            self.past.append(self.open.pop((agent, step)).id)
            expected_call = None
        if expected_call is None:
            approval_id = self.runner.run(self.approvals_client.parse_approval_id(answer))
            assert approval_id not in self.past
            self.open[agent, step] = Expected(approval_id, "pending", self.clock.time())
        elif expected_call.status == "pending":
            assert self.runner.run(self.approvals_client.parse_approval_id(answer)) == expected_call.id
        else:
            status = 200 if expected_call.status == "executed" else 403
            assert answer.status_code == status
            assert status == 403 or answer.json() == {"value": expected_call.result}
            self.past.append(self.open.pop((agent, step)).id)

    @rule(agent=agents, step=steps, word=st.sampled_from(["approve", "approve", "reject"]), times=st.integers(1, 3))
    def decide(self, agent: int, step: int, word: str, times: int) -> None:
        expected_call = self.open.get((agent, step))
        if expected_call is None:
            return
        statuses = self.runner.run(self._decide_repeatedly(expected_call.id, word, times))
        if expected_call.status != "pending" or self.clock.time() - expected_call.since >= DAY:
            assert statuses == [409] * times
            return
        assert sorted(statuses) == [200, *[409] * (times - 1)]
        expected_call.since = self.clock.time()
        expected_call.status = {"approve": "executed", "reject": "rejected"}[word]
        if word == "approve":
            self.counter += step
            expected_call.result = self.counter
            assert (
                self.runner.run(
                    self.approvals_client.wait_for_outcome(expected_call.id, self.approvals_client.baobab.owner)
                )["status"]
                == "executed"
            )

    async def _decide_repeatedly(self, approval_id: str, word: str, times: int) -> list[int]:
        by = self.approvals_client.baobab.owner
        answers = await asyncio.gather(*(self.approvals_client.decide(approval_id, word, by) for _ in range(times)))
        return [answer.status_code for answer in answers]

    @rule(hours=st.sampled_from([1, 13, 24]))
    def wait(self, hours: int) -> None:
        self.clock.advance(hours * 3600)
        self.runner.run(self.approvals_client.run_maintenance())

    @rule()
    def look(self) -> None:
        assert self.runner.run(self.approvals_client.get_counter()) == self.counter
        for approval_id, _ in zip(reversed(self.past), itertools.repeat(None, 2), strict=False):
            answer: Any = self.runner.run(
                self.approvals_client.decide(approval_id, by=self.approvals_client.baobab.owner)
            )
            assert answer.status_code == 409


Approving.TestCase.settings = settings(max_examples=12, stateful_step_count=20)
TestApproving = Approving.TestCase
