"""What ends in the middle has not begun: an action that breaks off at any of its statements leaves nothing."""

from typing import Any

import pytest

from baobab.storage.sql.database import Unit
from baobab.tools.substrate import proposals
from baobab.tools.substrate.access import Proposer
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate

MOST = 100


class SimulatedCrash(BaseException):
    """Nothing goes on after it."""


class CrashingUnit(Unit):
    """A transaction that breaks off before the statement of a number."""

    statements_left: int = 0

    async def execute(self, statement: Any, rows: Any = None) -> Any:
        self._count()
        return await super().execute(statement, rows)

    async def write(self, statement: Any, rows: Any = None) -> None:
        self._count()
        await super().write(statement, rows)

    def _count(self) -> None:
        self.statements_left -= 1
        if not self.statements_left:
            raise SimulatedCrash


async def propose_until(substrate: Substrate, statements: int, capability: str, payload: dict[str, Any]) -> bool:
    """Proposes, and breaks off before the statement of this number. Whether there were so many."""
    services, organisation = substrate.harness.services, substrate.owner.organisation_id
    unit = CrashingUnit(services.database, write=True, lock=organisation)
    unit.statements_left = statements
    try:
        await proposals.propose(unit, services, organisation, Proposer("human", "test"), capability, payload)
    except SimulatedCrash as crash:
        await unit.rollback(crash)
        return True
    # A commit may have a statement of its own.
    unit.statements_left = 0
    await unit.commit()
    return False


@pytest.mark.parametrize("capability", ["patch_entity", "record_learning", "revert_action"])
async def test_an_action_that_breaks_off_between_two_statements_leaves_nothing(
    substrate: Substrate, capability: str
) -> None:
    entity = (await substrate.do("upsert_entity", type="person", display_name="Ada"))["entity_id"]
    proposal = await substrate.propose("update_entity", id=entity, display_name="Eve")
    payloads: dict[str, dict[str, Any]] = {
        "patch_entity": {"id": entity, "attrs_patch": {"n": 1}},
        "record_learning": {"title": "Ask", "description": "x"},
        "revert_action": {"action_id": proposal["action_id"]},
    }
    database, organisation = substrate.harness.services.database, substrate.owner.organisation_id
    actions, before = (await substrate.call("actions"))["actions"], await substrate.call("entity", entity_id=entity)
    statements = 1
    while await propose_until(substrate, statements, capability, payloads[capability]):
        assert await find_faults(database, organisation) == []
        assert (await substrate.call("actions"))["actions"] == actions
        assert await substrate.call("entity", entity_id=entity) == before
        statements += 1
        assert statements < MOST
    assert len((await substrate.call("actions"))["actions"]) == len(actions) + 1
    assert await find_faults(database, organisation) == []
