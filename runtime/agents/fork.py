"""Fork points: the checkpoint of a run after one of its steps, from which another run can continue."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select

from baobab.runtime.agents.checkpoint_json import dumps, loads
from baobab.runtime.agents.edges import Edges
from baobab.runtime.agents.pieces import CheckpointPacker, add_pieces, read_pieces
from baobab.runtime.agents.spec.spec import GraphSpec
from baobab.runtime.agents.tables import checkpoints, writes
from baobab.storage.sql.database import Database, Execute, Unit

_BRANCH = "branch:to:"
"""The prefix of LangGraph's channels that make a node start."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The state after `step`, and the results of those calls of that step that had already returned."""

    step: int
    checkpoint: dict[str, Any]
    about: Mapping[str, Any]
    results: list[dict[str, Any]]

    @property
    def input(self) -> dict[str, Any]:
        return dict(self.checkpoint["channel_values"]["input"])

    @property
    def is_tainted(self) -> bool:
        """Whether text from outside is in the state, or in the results that will be added to it."""
        tainted_values = (loads(result["value"]) for result in self.results if result["channel"] == "tainted")
        return bool(self.checkpoint["channel_values"]["tainted"]) or any(tainted_values)

    def apply_changes(
        self, graph: Mapping[str, Any], run_input: Mapping[str, Any] | None, state: Mapping[str, Any] | None
    ) -> None:
        """Replaces the input, and keys of the state. The next node is chosen again by the new values.

        graph: that of the run. Raises RunFailed where no edge's condition holds.
        """
        values = self.checkpoint["channel_values"]
        if run_input is not None:
            values["input"] = dict(run_input)
        if state is not None:
            values["state"] = {**values["state"], **state}
        if run_input is not None or state is not None:
            self._decide_next_node(Edges(GraphSpec.model_validate_json(json.dumps(graph))))

    def _decide_next_node(self, edges: Edges) -> None:
        """Follows the edges of the node that ended last, unless it is still in the middle of its work."""
        values, versions = self.checkpoint["channel_values"], self.checkpoint["channel_versions"]
        pending = [channel for channel in values if channel.startswith(_BRANCH)]
        latest = max(
            (max(seen_versions.values()), name)
            for name, seen_versions in self.checkpoint["versions_seen"].items()
            if seen_versions
        )[1]
        ended_node = next((node_id for node_id, name in edges.names.items() if latest in (name, f"{name}_all")), None)
        if ended_node is None or values["talks"].get(ended_node):
            return
        if len(pending) != 1 or pending[0].removeprefix(_BRANCH) not in edges.names.values():
            return
        channel = _BRANCH + edges.follow(ended_node, values)
        if channel == pending[0]:
            return
        values[channel] = values.pop(pending[0])
        versions[channel] = versions[pending[0]]
        updated_channels = self.checkpoint.get("updated_channels")
        if updated_channels is not None:
            self.checkpoint["updated_channels"] = sorted({*updated_channels, channel} - {pending[0]})
        # The results belong to the node that would have come next.
        self.results.clear()

    async def save_to_run(self, unit: Unit, app_id: str, run_id: str) -> None:
        """Saves this as the first checkpoint of a run."""
        package = CheckpointPacker(dumps).pack_checkpoint(self.checkpoint)
        row = {"app_id": app_id, "thread_id": run_id, "namespace": "", "id": self.checkpoint["id"]}
        row |= {"parent_id": None, "checkpoint": package.text, "about": dict(self.about)}
        await unit.execute(insert(checkpoints), row)
        await unit.run_statements(lambda statements: add_pieces(statements, app_id, run_id, package.fresh))
        if self.results:
            await unit.execute(insert(writes), [{**result, "thread_id": run_id} for result in self.results])


async def find_fork_point(database: Database, run: Any, step: int | None) -> ForkPoint | None:
    """Returns the fork point after a step; None if the run did not take that step or ended with it. step: by default
    the last.
    """
    conditions = (
        checkpoints.c.app_id == run.app_id,
        checkpoints.c.thread_id == run.id,
        checkpoints.c.namespace == "",
    )
    async with database.reading() as connection:
        id_query = select(checkpoints.c.id).where(*conditions).order_by(checkpoints.c.id)
        ids = (await connection.execute(id_query)).scalars().all()

        async def load_checkpoint(index: int) -> tuple[int, dict[str, Any], Any]:
            row = (
                await connection.execute(select(checkpoints).where(*conditions, checkpoints.c.id == ids[index]))
            ).one()
            texts_by_digest = await read_pieces(connection.execute, run.app_id, [run.id], [row.checkpoint])
            checkpoint = loads(row.checkpoint, texts_by_digest)
            return checkpoint["channel_values"].get("steps", 0), checkpoint, row.about

        if not ids:
            return None
        latest_step, checkpoint, about = await load_checkpoint(len(ids) - 1)
        last_step = latest_step - 1 if run.status == "completed" else latest_step
        step = last_step if step is None else step
        if not 0 <= step <= last_step:
            return None
        low, high = 0, len(ids) - 1
        if step < latest_step:
            # Finds the last checkpoint of the step by bisection: the number of steps never falls.
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if (await load_checkpoint(middle))[0] <= step else (low, middle - 1)
            steps_taken, checkpoint, about = await load_checkpoint(low)
            if steps_taken != step or "input" not in checkpoint["channel_values"]:
                return None
            return ForkPoint(step, checkpoint, about, [])
        results_query = select(writes).where(
            writes.c.app_id == run.app_id,
            writes.c.thread_id == run.id,
            writes.c.namespace == "",
            writes.c.checkpoint_id == checkpoint["id"],
            # Positions below 0 are interrupts and errors.
            writes.c.position >= 0,
        )
        results = [dict(row) for row in (await connection.execute(results_query)).mappings()]
    return ForkPoint(step, checkpoint, about, results) if "input" in checkpoint["channel_values"] else None


async def read_state(execute: Execute, run: Any) -> Mapping[str, Any]:
    """Reads what the nodes of a run have written so far, by the key of the state. run: its row."""
    of_run = (checkpoints.c.app_id == run.app_id, checkpoints.c.thread_id == run.id, checkpoints.c.namespace == "")
    query = select(checkpoints.c.checkpoint).where(*of_run).order_by(checkpoints.c.id.desc()).limit(1)
    text = (await execute(query)).scalar()
    if text is None:
        return {}
    texts_by_digest = await read_pieces(execute, run.app_id, [run.id], [text])
    state: Mapping[str, Any] = loads(text, texts_by_digest)["channel_values"].get("state") or {}
    return state
