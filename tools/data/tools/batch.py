"""/v1/{app_id}/data-batch: writes to several tables in one transaction."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Annotated, Unpack

from pydantic import Field
from sqlalchemy.exc import IntegrityError

from baobab.tools.core import AppId, BadRequest, BaobabError, Call, Guard, Rest
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.changes import Change
from baobab.tools.data.access import ACCESS, find_actor
from baobab.tools.data.errors import AnswerTooLarge, UnexpectedCount
from baobab.tools.data.fields import (
    AS_HEADERS,
    KEY_HEADER,
    MOST_ROWS,
    UNDO,
    WRITE_ERRORS,
    WRITTEN,
    Prefer,
)
from baobab.tools.data.queries.preferences import Preferences, read_preferences
from baobab.tools.data.rows.attempts import read_attempt
from baobab.tools.data.rows.foresight import FILTERED_ANEW, SHOWN_AS_NOW, Foresight
from baobab.tools.data.rows.ignored_names import require_known_keys, warn_of_ignored_keys
from baobab.tools.data.rows.outcomes import say_batch
from baobab.tools.data.rows.row_reader import MOST_BYTES
from baobab.tools.data.rows.row_requests import find_upsert, open_table, read_query, require_filters
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import read_rows, write_rows
from baobab.tools.data.rows.violations import translate_violation
from baobab.tools.data.schema.catalogue import Catalogue, Command
from baobab.tools.data.schemas import Batch, Row, Write, WriteOptions, Written
from baobab.tools.data.toolset import data

_MOST_WRITES = 100
_FIELDS: Mapping[str, tuple[Command, set[str], set[str]]] = {
    # For each kind of write: its command, its required fields and its optional fields.
    "insert": ("INSERT", {"values"}, {"on_conflict"}),
    "update": ("UPDATE", {"changes", "where"}, set()),
    "delete": ("DELETE", {"where"}, set()),
}


async def _preview_batch(
    call: Call, app_id: AppId, writes: list[Write], prefer: str, **options: Unpack[WriteOptions]
) -> Preview:
    """Lists the changes that each write would make to the present rows, without the effects of the writes before it."""
    _require_fields(writes)

    def look(rows: Rows, catalogue: Catalogue) -> tuple[list[str], list[Change]]:
        foresight = Foresight(rows, catalogue)
        changes = [change for write in writes for change in _foresee(rows, catalogue, foresight, write, prefer)]
        return [_describe(rows, catalogue, write) for write in writes], changes

    descriptions, changes = await read_rows(call, find_actor(call, options), look)
    await data_batch(call, app_id, writes, prefer, **options)

    first = f"It would make {len(writes)} writes, all or none of them."
    if any(write["op"] != "insert" for write in writes):
        first += f" {FILTERED_ANEW}"
    if len(writes) > 1:
        first += f" {SHOWN_AS_NOW}"
    return Preview("\n".join([first, *descriptions])[:4000], changes)


def _describe(rows: Rows, catalogue: Catalogue, write: Write) -> str:
    table = open_table(catalogue, rows, write["table"], _FIELDS[write["op"]][0])
    if write["op"] == "insert":
        return f"insert into `{table.name}` {json.dumps(write['values'], ensure_ascii=False)[:500]}"
    require_filters(table, write["where"])
    selection = read_query(catalogue, table, None, write["where"])
    count = rows.count(selection)
    selection.limit = 5
    sample = json.dumps(rows.select(selection), ensure_ascii=False)[:500]
    to = f" to {json.dumps(write['changes'], ensure_ascii=False)[:500]}" if write["op"] == "update" else ""
    return f"{write['op']} {count} {'row' if count == 1 else 'rows'} of `{table.name}`{to}, such as {sample}"


def _foresee(rows: Rows, catalogue: Catalogue, foresight: Foresight, write: Write, prefer: str) -> list[Change]:
    table = open_table(catalogue, rows, write["table"], _FIELDS[write["op"]][0])
    if write["op"] == "insert":
        values = write["values"] if isinstance(write["values"], list) else [write["values"]]
        upsert = find_upsert(table, write.get("on_conflict"), read_preferences(prefer))
        return foresight.foresee_insert(table, values, upsert)
    require_filters(table, write["where"])
    if write["op"] == "update":
        return foresight.foresee_update(table, write["where"], write["changes"])
    return foresight.foresee_delete(table, write["where"])


@data.tool(
    "POST /data-batch",
    access=ACCESS,
    effect="write",
    raises=(*WRITE_ERRORS, UnexpectedCount),
    audit=WRITTEN,
    rest=Rest(
        query=("prefer", "idempotency_key", *AS_HEADERS),
        from_headers={**AS_HEADERS, **KEY_HEADER, "prefer": "prefer"},
        examples={
            "writes": [
                {
                    "op": "insert",
                    "table": "posts",
                    "values": {"user_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", "title": "Hi"},
                },
                {"op": "update", "table": "posts", "where": {"title": "eq.Hello"}, "changes": {"title": "Hi"}},
            ]
        },
    ),
    guard=Guard(
        destructive_when="if one of the writes deletes rows",
        undone_by=UNDO,
        consequence="It changes or deletes rows. data_undo can bring them back within the days of undo.",
        preview=_preview_batch,
        outcome=say_batch,
    ),
)
async def data_batch(
    call: Call,
    app_id: AppId,
    writes: Annotated[list[Write], Field(min_length=1, max_length=_MOST_WRITES)],
    prefer: Prefer = "",
    **options: Unpack[WriteOptions],
) -> Batch:
    """Write to several tables in one transaction: inserts, updates and deletes, all or none of them.

    They run in order, each under the policies of its table, and are undone as one action.

    writes: at most 100, of at most 1000 rows together.
    prefer: `return=minimal` returns only how many rows each write changed.
    """
    actor = find_actor(call, options)
    preferences = read_preferences(prefer)
    _require_fields(writes)
    if any(write["op"] == "delete" for write in writes):
        call.declare_destructive()
    batch = _BatchRun(call, preferences)

    def write_all(rows: Rows, catalogue: Catalogue) -> Batch:
        return {"results": [batch.write(rows, catalogue, number, write) for number, write in enumerate(writes)]}

    attempt = read_attempt(call, actor, options, [writes, prefer])
    result = await write_rows(call, actor, write_all, attempt)
    for write in writes:
        values = write.get("values", write.get("changes", []))
        await warn_of_ignored_keys(call, write["table"], values if isinstance(values, list) else [values])
    call.audit.resource_id = ",".join(sorted({write["table"] for write in writes}))[:200]
    return result


class _BatchRun:
    """The shared limits of one batch."""

    def __init__(self, call: Call, preferences: Preferences) -> None:
        self._call = call
        self._preferences = preferences
        self._remaining = MOST_ROWS
        self._bytes = MOST_BYTES

    def write(self, rows: Rows, catalogue: Catalogue, number: int, write: Write) -> Written:
        """Runs one write. Its errors name the write by its number."""
        try:
            rows_of_write = self._write(rows, catalogue, write)
        except (IntegrityError, sqlite3.IntegrityError) as exc:
            raise _name_write(translate_violation(exc, catalogue), number, write) from exc
        except BaobabError as exc:
            raise _name_write(exc, number, write) from exc
        result: Written = {"op": write["op"], "table": write["table"], "count": len(rows_of_write)}
        return result if self._preferences.minimal else {**result, "rows": rows_of_write}

    def _write(self, rows: Rows, catalogue: Catalogue, write: Write) -> list[Row]:
        table = open_table(catalogue, rows, write["table"], _FIELDS[write["op"]][0])
        answer = () if self._preferences.minimal else None
        if write["op"] == "insert":
            values = write["values"] if isinstance(write["values"], list) else [write["values"]]
            require_known_keys(self._call, table, values)
            self._take_rows(len(values))
            upsert = find_upsert(table, write.get("on_conflict"), self._preferences)
            written_rows = rows.insert(table, values, upsert, answer)
        elif write["op"] == "update":
            require_known_keys(self._call, table, [write["changes"]])
            written_rows = rows.update(table, write["changes"], require_filters(table, write["where"]), answer)
            self._take_rows(len(written_rows))
        else:
            written_rows = rows.delete(table, require_filters(table, write["where"]), answer)
            self._take_rows(len(written_rows))
        if len(written_rows) != write.get("expect", len(written_rows)):
            raise UnexpectedCount(
                f"It changes {len(written_rows)} rows, but `expect` is {write['expect']}.",
                details={"rows": len(written_rows)},
            )
        if not self._preferences.minimal:
            self._bytes -= len(json.dumps(written_rows))
            if self._bytes < 0:
                raise AnswerTooLarge(f"The rows of the batch have more than {MOST_BYTES} bytes.")
        return written_rows

    def _take_rows(self, count: int) -> None:
        self._remaining -= count
        if self._remaining < 0:
            raise BadRequest(f"A batch writes at most {MOST_ROWS} rows.", details={"limit": MOST_ROWS})


def _name_write(error: BaobabError, number: int, write: Write) -> BaobabError:
    """Adds the number of the write, counted from 0, to an error."""
    error.message = f"The {write['op']} at writes[{number}]: {error.message}"
    error.details = {**error.details, "write": number}
    return error


def _require_fields(writes: list[Write]) -> None:
    for number, write in enumerate(writes):
        _, required_fields, further = _FIELDS[write["op"]]
        fields = set(write) - {"op", "table", "expect"}
        if not required_fields <= fields <= required_fields | further:
            names = ", ".join(f"`{name}`" for name in sorted(required_fields))
            raise BadRequest(
                f"writes[{number}]: {write['op']} takes {names}, and not {', '.join(sorted(fields)) or 'nothing'}.",
                details={"write": number},
            )
