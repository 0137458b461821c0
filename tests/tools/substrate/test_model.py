"""Proposals, decisions, merges and undoing in any order, against a model that only knows what each action means.

What the substrate shows must be what the actions that are not undone make of nothing, one after the other.
"""

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from baobab import composition
from baobab.settings import load_settings
from baobab.tools.core.errors import BaobabError
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.tools.conftest import ToolHarness
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate

State = dict[str, dict[str, Any]]
numbers = st.integers(0, 2)
places = st.integers(0, 40)


@dataclass
class ModelAction:
    """An action that was done: the rows that it writes, makes and names, and what it makes of a state."""

    id: str
    effect: Callable[[State], None]
    writes: set[str]
    makes: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    reversible: bool = True
    is_reverted: bool = False


class Remembering(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory()
        self.actions: list[ModelAction] = []
        self.waiting: list[tuple[str, str, str]] = []
        self.counter = itertools.count()

    @initialize()
    def begin(self) -> None:
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        clock, data = FixedClock(), Path(self.folder.name)
        opening = composition.open_application(load_settings(prepare_data(data), data=data), clock=clock)
        application = await self.stack.enter_async_context(opening)
        harness = ToolHarness(application.services, application.registry, clock, data)
        self.substrate = Substrate(harness, await harness.sign_up("ada@example.com"))

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        release_data(Path(self.folder.name))
        self.folder.cleanup()

    def propose(self, capability: str, **payload: Any) -> tuple[str, Any]:
        """The action and its result; it is approved where it waits."""
        return self.runner.run(self._propose(capability, payload))

    async def _propose(self, capability: str, payload: dict[str, Any]) -> tuple[str, Any]:
        self.substrate.harness.clock.advance(1)
        proposal = await self.substrate.propose(capability, **payload)
        if proposal["requires_approval"]:
            action = await self.substrate.call("approve", action_id=proposal["action_id"])
            assert action["status"] == "executed", action
            proposal["result"] = action["result"]
        return proposal["action_id"], proposal["result"]

    @property
    def state(self) -> State:
        """What the actions that stand make of nothing."""
        state: State = {}
        for action in self.actions:
            if not action.is_reverted:
                action.effect(state)
        return state

    def find_live(self, prefix: str, place: int) -> str | None:
        """One of the rows that there are."""
        row_ids = [row_id for row_id, row in self.state.items() if row_id.startswith(prefix) and not row.get("merged")]
        return row_ids[place % len(row_ids)] if row_ids else None

    @rule(number=numbers)
    def upsert_entity(self, number: int) -> None:
        key, name = f"k{number}", f"name {next(self.counter)}"
        holder_ids = [row_id for row_id, row in self.state.items() if row.get("key") == key]
        # A merged one counts only where no other has the key; it stands for the one that it was merged into.
        holder_ids.sort(key=lambda row_id: self.state[row_id]["merged"] is not None)
        expected_id = self.resolve(holder_ids[0]) if holder_ids else None
        payload = {"type": "person", "display_name": name, "canonical_keys": {"number": key}}
        action_id, result = self.propose("upsert_entity", **payload)
        entity_id = result["entity_id"]
        assert result["was_insert"] == (expected_id is None)
        if expected_id is None:

            def insert(state: State) -> None:
                state[entity_id] = {"name": name, "key": key, "attrs": {}, "merged": None}

            self.actions.append(ModelAction(action_id, insert, {entity_id}, {entity_id}))
        else:
            assert entity_id == expected_id
            self.actions.append(ModelAction(action_id, lambda s: s[entity_id].update(name=name, key=key), {entity_id}))

    def resolve(self, entity_id: str) -> str:
        state = self.state
        while state[entity_id]["merged"] is not None:
            entity_id = state[entity_id]["merged"]
        return entity_id

    @rule(place=places, value=numbers)
    def patch_entity(self, place: int, value: int) -> None:
        entity_id = self.find_live("ent_", place)
        if entity_id is not None:
            action_id, _ = self.propose("patch_entity", id=entity_id, attrs_patch={"value": value})
            self.actions.append(
                ModelAction(action_id, lambda s: s[entity_id]["attrs"].update(value=value), {entity_id})
            )

    @rule(place=places, other=places)
    def merge(self, place: int, other: int) -> None:
        loser, winner = self.find_live("ent_", place), self.find_live("ent_", other)
        if loser is None or winner is None:
            return
        if loser == winner:
            self.expect("VALIDATION_INVALID_INPUT", "merge_entities", loser_id=loser, winner_id=winner, reason="x")
            return
        action_id, _ = self.propose("merge_entities", loser_id=loser, winner_id=winner, reason="one")
        effect: Callable[[State], None] = lambda s: s[loser].update(merged=winner)  # noqa: E731
        self.actions.append(ModelAction(action_id, effect, {loser}, names={winner}, reversible=False))

    @rule(place=places)
    def unmerge(self, place: int) -> None:
        merged_ids = [row_id for row_id, row in self.state.items() if row.get("merged")]
        if merged_ids:
            entity_id = merged_ids[place % len(merged_ids)]
            action_id, _ = self.propose("unmerge_entities", entity_id=entity_id, reason="two")
            effect: Callable[[State], None] = lambda s: s[entity_id].update(merged=None)  # noqa: E731
            self.actions.append(ModelAction(action_id, effect, {entity_id}, reversible=False))

    @rule(place=places)
    def record_commitment(self, place: int) -> None:
        party = self.find_live("ent_", place)
        party_field = {} if party is None else {"from_entity": party}
        action_id, result = self.propose("record_commitment", description="Pay", status="confirmed", **party_field)
        row_id = result["commitment_id"]
        effect: Callable[[State], None] = lambda s: s.update({row_id: {"status": "confirmed"}})  # noqa: E731
        self.actions.append(ModelAction(action_id, effect, {row_id}, {row_id}, {party} if party else set()))

    @rule(place=places, status=st.sampled_from(["fulfilled", "broken"]))
    def update_commitment(self, place: int, status: str) -> None:
        row_id = self.find_live("com_", place)
        if row_id is not None:
            action_id, _ = self.propose("update_commitment", commitment_id=row_id, status=status)
            self.actions.append(ModelAction(action_id, lambda s: s[row_id].update(status=status), {row_id}))

    @rule()
    def record_decision(self) -> None:
        action_id, result = self.propose("record_decision", title="Ship", kind="vision")
        row_id = result["decision_id"]
        effect: Callable[[State], None] = lambda s: s.update({row_id: {"status": "active"}})  # noqa: E731
        self.actions.append(ModelAction(action_id, effect, {row_id}, {row_id}))

    @rule(place=places)
    def wait_to_supersede(self, place: int) -> None:
        active = [row_id for row_id, row in self.state.items() if row.get("status") == "active"]
        if active:
            old = active[place % len(active)]
            payload = {"old_decision_id": old, "new_title": "Wait", "kind": "vision"}
            proposal = self.runner.run(self.substrate.propose("supersede_decision", **payload))
            assert proposal["requires_approval"]
            self.waiting.append((proposal["action_id"], old, "proposed"))

    @rule(place=places, word=st.sampled_from(["approve", "reject"]))
    def decide(self, place: int, word: str) -> None:
        if not self.waiting:
            return
        action_id, old, _ = self.waiting.pop(place % len(self.waiting))
        self.substrate.harness.clock.advance(1)
        action = self.runner.run(self.substrate.call(word, action_id=action_id))
        if word == "reject":
            assert action["status"] == "rejected"
        elif self.state.get(old, {}).get("status") != "active":
            assert (action["status"], action["result"]["error"]["code"] != "") == ("failed", True)
        else:
            assert action["status"] == "executed"
            new = action["result"]["decision_id"]

            def effect(state: State) -> None:
                state[old]["status"] = "superseded"
                state[new] = {"status": "active"}

            self.actions.append(ModelAction(action_id, effect, {old, new}, {new}, reversible=False))

    def expect(self, code: str, capability: str, **payload: Any) -> None:
        with pytest.raises(BaobabError) as refusal:
            self.propose(capability, **payload)
        assert refusal.value.code == code

    def find_later(self, action: ModelAction) -> list[ModelAction]:
        """The actions that build on one and stand, the latest first, with the action itself."""
        later = [action]
        for other in self.actions[self.actions.index(action) + 1 :]:
            if not other.is_reverted and any(other.writes & one.writes or other.names & one.makes for one in later):
                later.append(other)
        return later[::-1]

    def foresee(self, action: ModelAction, *, cascade: bool) -> str | None:
        """The refusal of an undo; None where it is done."""
        if action.is_reverted:
            return "already_reverted"
        if not action.reversible:
            return "not_reversible"
        later = self.find_later(action)[:-1]
        return "built_upon" if later and (not cascade or any(not each.reversible for each in later)) else None

    @rule(place=places, cascade=st.booleans())
    def revert(self, place: int, cascade: bool) -> None:
        if not self.actions:
            return
        action = self.actions[-1 - place % len(self.actions)]
        refusal = self.foresee(action, cascade=cascade)
        if refusal is not None:
            self.expect(refusal, "revert_action", action_id=action.id, cascade=cascade)
            return
        expected_actions = self.find_later(action)
        _, result = self.propose("revert_action", action_id=action.id, cascade=cascade)
        assert set(result["reverted"]) == {each.id for each in expected_actions}
        for each in expected_actions:
            each.is_reverted = True

    @rule(chosen_places=st.lists(places, min_size=1, max_size=6), cascade=st.booleans())
    def revert_many(self, chosen_places: list[int], cascade: bool) -> None:
        if not self.actions:
            return
        at = sorted({place % len(self.actions) for place in chosen_places}, reverse=True)
        targets, expected_errors = [self.actions[place] for place in at], {}
        _, result = self.propose(
            "bulk_revert_actions", action_ids=[each.id for each in reversed(targets)], reason="x", cascade=cascade
        )
        undone_ids: set[str] = set()
        for action in targets:
            if action.id in undone_ids:
                continue
            refusal = self.foresee(action, cascade=cascade)
            if refusal is not None:
                expected_errors[action.id] = refusal
                continue
            for each in self.find_later(action):
                each.is_reverted = True
                undone_ids.add(each.id)
        assert {row["action_id"]: row["error"] for row in result["failed"]} == expected_errors
        assert set(result["reverted"]) == undone_ids

    @invariant()
    def look(self) -> None:
        if not hasattr(self, "substrate") or not self.actions:
            return
        rows, state = self.runner.run(self._read()), self.state
        expected_rows = {row_id: row for row_id, row in state.items() if not row.get("merged")}
        for row in expected_rows.values():
            row.pop("key", None)
            row.pop("merged", None)
        assert rows == expected_rows
        database, organisation = self.substrate.harness.services.database, self.substrate.owner.organisation_id
        assert self.runner.run(find_faults(database, organisation)) == []

    async def _read(self) -> State:
        """What the substrate shows, but for decisions that are marked as undone."""
        self.substrate.harness.clock.advance(1)
        entities = (await self.substrate.call("entities", type="person", limit=200))["entities"]
        rows = {row["id"]: {"name": row["display_name"], "attrs": row["attrs"]} for row in entities}
        memories = (await self.substrate.call("memory_list", limit=100))["results"]
        return rows | {row["id"]: {"status": row["status"]} for row in memories if row["status"] != "reversed"}


Remembering.TestCase.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)
TestRemembering = Remembering.TestCase


def test_an_undone_change_of_an_entity_leaves_nothing_in_it() -> None:
    machine = Remembering()
    machine.begin()
    try:
        machine.upsert_entity(number=2)
        machine.patch_entity(place=0, value=0)
        machine.look()
        machine.revert(place=0, cascade=False)
        machine.look()
    finally:
        machine.teardown()
