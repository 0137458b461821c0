"""A walk through a ledger: everything in it must follow from the changes that it keeps."""

from collections import defaultdict
from typing import Any

from sqlalchemy import select

from baobab.storage.sql.database import Database
from baobab.storage.sql.full_text import split_words, tag_words
from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.reverts import UNDOING
from baobab.tools.substrate.quota import recount

UNDOABLE = {
    "entities": tables.entities,
    "decisions": tables.decisions,
    "commitments": tables.commitments,
    "learnings": tables.learnings,
    "source_artifacts": tables.source_artifacts,
}
KINDS = {
    "decision": "decisions",
    "commitment": "commitments",
    "learning": "learnings",
    "source_artifact": "source_artifacts",
}


async def find_faults(database: Database, organisation_id: str) -> list[str]:
    """Returns the inconsistencies of the substrate of an organisation."""
    rows: dict[str, dict[str, Any]] = {}
    async with database.reading() as connection:

        async def load(table: Any, *order: str) -> list[Any]:
            query = select(table).where(table.c.organisation_id == organisation_id)
            result = await connection.execute(query.order_by(*(table.c[name] for name in order)))
            return list(result.mappings())

        for name, table in UNDOABLE.items():
            rows[name] = {row["id"]: row for row in await load(table)}
        actions = {row["id"]: row for row in await load(tables.action_ledger)}
        changes = await load(tables.changes, "seq")
        memories = {row["id"]: row for row in await load(tables.memory)}
        keys = {(row["entity_id"], row["name"], row["value"], row["type"]) for row in await load(tables.entity_keys)}
        (settings,) = await load(tables.settings)
        used_bytes = await recount(connection.execute, organisation_id)
    faults = [*_check_changes(changes, settings), *_check_actions(actions, changes)]
    if settings["used_bytes"] not in (None, used_bytes):
        faults.append(f"{settings['used_bytes']} bytes are counted, and {used_bytes} are there")
    faults += [*_check_rows(rows, actions, changes), *_check_indexes(rows, memories, keys)]
    return faults + _check_entities(rows["entities"]) + _check_references(rows)


def _check_changes(changes: list[Any], settings: Any) -> list[str]:
    numbers = [change["seq"] for change in changes]
    if numbers != list(range(1, len(numbers) + 1)) or settings["last_seq"] != len(numbers):
        return [f"the changes are not numbered without gaps: {numbers[:20]}, {settings['last_seq']}"]
    return []


def _check_actions(actions: dict[str, Any], changes: list[Any]) -> list[str]:
    faults = []
    changing = {change["action_id"] for change in changes if change["action_id"]}
    faults += [f"{action_id}: changed rows and is not in the ledger" for action_id in changing - actions.keys()]
    for action_id, row in actions.items():
        was_done = row["status"] in ("executed", "reverted")
        if was_done != (row["executed_at"] is not None):
            faults.append(f"{action_id}: {row['status']} and executed at {row['executed_at']}")
        if not was_done and action_id in changing:
            faults.append(f"{action_id}: {row['status']}, and has changed rows")
        undoing = actions.get(row["reverted_by_action_id"] or "")
        if (row["status"] == "reverted") != (undoing is not None):
            faults.append(f"{action_id}: {row['status']} by {row['reverted_by_action_id']}")
        if undoing is not None and action_id not in undoing["result"]["reverted"]:
            faults.append(f"{action_id}: the action that undid it does not say so")
    return faults


def _check_rows(rows: dict[str, dict[str, Any]], actions: dict[str, Any], changes: list[Any]) -> list[str]:
    """Each row is what its changes have left, one after the other."""
    faults = []
    history: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for change in changes:
        if change["tbl"] in UNDOABLE:
            history[change["tbl"], change["row_id"]].append(change)
    for (name, row_id), steps in history.items():
        row, is_there = rows[name].get(row_id), False
        for step in steps:
            if (step["before"] is not None) != is_there and step["action_id"] is not None:
                faults.append(f"{row_id}: {step['op']} of a row that was{'' if is_there else ' not'} there")
            is_merge = step["op"] == "delete" and step["action_id"] and _is_merge(actions, step)
            is_there = step["op"] != "delete" or is_merge
        if is_there != (row is not None):
            faults.append(f"{row_id}: it is{' not' if row is None else ''} there, unlike its changes say")
        elif row is not None and row["action_id"]:
            faults += _check_writer(row, steps, actions)
    changed_ids = {row_id for _, row_id in history}
    faults += [f"{row_id}: nothing has made it" for table in rows.values() for row_id in table.keys() - changed_ids]
    return faults


def _is_merge(actions: dict[str, Any], step: Any) -> bool:
    return bool(actions[step["action_id"]]["capability"] == "merge_entities")


def _check_writer(row: Any, steps: list[Any], actions: dict[str, Any]) -> list[str]:
    """A row was written last by the last action that is not undone; an undone one has left nothing but a mark."""
    writers = [
        step["action_id"]
        for step in steps
        if step["action_id"] and actions[step["action_id"]]["capability"] not in UNDOING
    ]
    standing = [writer for writer in writers if actions[writer]["status"] != "reverted"]
    last_writer = standing[-1] if standing else writers[0]
    if not standing and row.get("status") != "reversed":
        return [f"{row['id']}: all that made it is undone, and it is there"]
    return [] if row["action_id"] == last_writer else [f"{row['id']}: written by {row['action_id']}, not {last_writer}"]


def _check_indexes(rows: dict[str, dict[str, Any]], memories: dict[str, Any], keys: set[Any]) -> list[str]:
    faults = []
    memory_ids = {row_id for name in KINDS.values() for row_id in rows[name]}
    if memory_ids != memories.keys():
        faults.append(f"the index has other memories: {memory_ids ^ memories.keys()}")
    for row_id, memory in memories.items():
        row = rows[KINDS[memory["kind"]]].get(row_id)
        if row is None:
            continue
        fields = [row.get(name) for name in ("status", "supersedes", "source_artifact_id", "updated_at")]
        if fields != [memory[name] for name in ("status", "supersedes", "source_artifact_id", "updated_at")]:
            faults.append(f"{row_id}: the index has it as it was")
        words = tag_words(memory["organisation_id"], split_words(row.get("title") or row["description"]))
        if not set(words) <= set(memory["words"].split()):
            faults.append(f"{row_id}: its words are not in the index")
    own = {
        (row["id"], name, value, row["type"])
        for row in rows["entities"].values()
        for name, value in (row["canonical_keys"] or {}).items()
    }
    return faults if own == keys else [*faults, f"the keys of entities differ: {own ^ keys}"]


def _check_entities(entities: dict[str, Any]) -> list[str]:
    faults = []
    emails = [row["primary_email"] for row in entities.values() if row["primary_email"] and not row["merged_into"]]
    if len(emails) != len(set(emails)):
        faults.append("two entities have one address")
    for entity_id in entities:
        visited_ids, at = set(), entity_id
        while at not in visited_ids and at in entities and entities[at]["merged_into"] is not None:
            visited_ids.add(at)
            at = entities[at]["merged_into"]
        if at in visited_ids or at not in entities:
            faults.append(f"{entity_id}: it was merged into {at}, which leads nowhere")
    return faults


def _check_references(rows: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"{row_id}: comes from an artifact that is not there"
        for name in ("decisions", "commitments", "learnings")
        for row_id, row in rows[name].items()
        if row["source_artifact_id"] is not None and row["source_artifact_id"] not in rows["source_artifacts"]
    ]
