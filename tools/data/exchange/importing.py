"""Imports a file into a table as it arrives, in parts that are a transaction each, so that other writes can run in
between.

A part that breaks a rule of the table is written in halves, down to the line that breaks it. The progress of the import
is stored with the rows of each part, so that the same file with the same key continues where it stopped.
"""

import codecs
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from baobab.tools.core import BadRequest, BaobabError, Call
from baobab.tools.core.errors import BodyTooLarge
from baobab.tools.core.stream import Body
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import (
    IdempotencyKeyReused,
    ImportOvertaken,
    ImportStopped,
    PolicyViolation,
    UniqueViolation,
)
from baobab.tools.data.exchange.csv_rows import DELIMITERS, CsvRecords
from baobab.tools.data.exchange.records import LONGEST, BrokenRecord, JsonRecords, Record, Records
from baobab.tools.data.history.change_log import find_author
from baobab.tools.data.queries.preferences import Preferences
from baobab.tools.data.rows.attempts import Attempt, Attempts, Rehearsed
from baobab.tools.data.rows.row_requests import find_upsert, open_table
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import find_catalogue, write_part
from baobab.tools.data.schema.catalogue import Catalogue, Column, TableInfo
from baobab.tools.data.schemas import Imported, LineError, Row
from baobab.tools.data.values.array_text import parse_array
from baobab.tools.data.values.column_types import ColumnType

Format = Literal["csv", "jsonl"]
MOST_BYTES = 2**30
_MOST_ROWS = 500
_MOST_CHARACTERS = 2**20
"""The most rows and characters of one part."""
_CHUNK = 64 * 1024
_MOST_FAILED = 1000
_MOST_SHOWN = 100
_OF_LINES = (BadRequest, UniqueViolation, PolicyViolation)
"""Errors that are the fault of a single line."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The import that a caller asks for.

    skips: whether lines that fail are left out; otherwise the first one ends the import.
    """

    table: str
    format: Format
    on_conflict: str | None
    preferences: Preferences
    skips: bool
    dry_run: bool
    attempt: Attempt | None
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class _Line:
    """A row and its place in the file.

    digest: of the file up to the end of the line.
    """

    number: int
    row: Row
    digest: str


@dataclass(slots=True)
class _Progress:
    """The progress of an import: the last line whose row is written, the digest of the file up to its end, and the
    counts so far.
    """

    line: int = 0
    digest: str = ""
    written: int = 0
    failed: int = 0
    errors: list[LineError] = field(default_factory=list)
    import_id: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of an import, which comes after those up to a line."""

    request: ImportRequest
    after_line: int
    progress: _Progress

    def find(self, attempts: Attempts) -> None:
        if self.request.attempt is not None and not self.request.dry_run:
            stored_progress = attempts.read_progress(self.request.attempt)
            if (stored_progress["line"] if stored_progress else 0) != self.after_line:
                raise ImportOvertaken

    def keep(self, attempts: Attempts, result: Any, action: int | None) -> None:
        del result, action
        if self.request.dry_run:
            raise Rehearsed
        if self.request.attempt is not None:
            attempts.keep_progress(self.request.attempt, asdict(self.progress))


class Import:
    def __init__(self, call: Call, actor: Actor, request: ImportRequest) -> None:
        self._call = call
        self._actor = actor
        self._request = request
        self._progress = _Progress(import_id=f"import-{call.services.ids.uuid()}")
        self._part: list[_Line] = []
        self._characters = 0

    async def run(self, body: Body) -> Imported:
        table = (await find_catalogue(self._call)).table(self._request.table)
        find_upsert(table, self._request.on_conflict, self._request.preferences)
        earlier_progress = await self._load_progress()
        is_same = not earlier_progress.line
        different_file = IdempotencyKeyReused("The file does not begin as the one that was imported with this key.")
        names: list[str] | None = None
        digest = hashlib.sha256()
        records: Records = CsvRecords(self._request.delimiter) if self._request.format == "csv" else JsonRecords()
        async for record in _read_records(body, records):
            digest.update(record.text.encode(errors="surrogatepass"))
            if self._request.format == "csv" and names is None:
                names = _read_header(table, record)
                continue
            if record.line <= earlier_progress.line:
                is_same = is_same or (
                    record.line == earlier_progress.line and digest.hexdigest() == earlier_progress.digest
                )
                continue
            if not is_same:
                raise different_file
            await self._take(table, names, record, digest.copy().hexdigest())
        if not is_same:
            raise different_file
        await self._write_part()
        return self._report()

    async def _load_progress(self) -> _Progress:
        """Loads what an earlier call with the same key has imported. Its lines are not written again."""
        attempt, call = self._request.attempt, self._call
        if attempt is None or self._request.dry_run:
            return _Progress()
        app_id, store = call.require_app().id, call.stores.data
        progress = await store.read(
            app_id, lambda statements: Attempts(statements, store, app_id, "").read_progress(attempt), quick=True
        )
        if progress is None:
            return _Progress()
        self._progress = _Progress(**progress)
        return _Progress(**progress)

    async def _take(self, table: TableInfo, names: list[str] | None, record: Record, digest: str) -> None:
        """Adds the row of a record to the next part."""
        try:
            row = _read_row(table, names, record.content)
        except BadRequest as exc:
            await self._write_part()
            self._fail(record.line, exc)
            return
        if row is None:
            return
        size = len(record.text)
        if len(self._part) == _MOST_ROWS or self._characters + size > _MOST_CHARACTERS:
            await self._write_part()
        self._part.append(_Line(record.line, row, digest))
        self._characters += size

    async def _write_part(self) -> None:
        lines, self._part, self._characters = self._part, [], 0
        if lines:
            try:
                await self._write(lines)
            except ImportStopped:
                raise
            except BaobabError as exc:
                # Not the fault of a line: the plan's limit is reached, or the app is being moved.
                exc.details = {**exc.details, "import": self._report()}
                raise

    async def _write(self, lines: list[_Line]) -> None:
        """Writes rows, except those that break a rule of the table. Raises ImportStopped."""
        try:
            await self._commit(lines)
        except _OF_LINES as exc:
            if len(lines) == 1:
                self._fail(lines[0].number, exc)
                return
            middle = len(lines) // 2
            await self._write(lines[:middle])
            await self._write(lines[middle:])

    async def _commit(self, lines: list[_Line]) -> None:
        request, progress = self._request, self._progress
        next_progress = replace(progress, line=lines[-1].number, digest=lines[-1].digest)

        def write(rows: Rows, catalogue: Catalogue) -> None:
            table = open_table(catalogue, rows, request.table, "INSERT")
            upsert = find_upsert(table, request.on_conflict, request.preferences)
            values = [line.row for line in lines]
            next_progress.written = progress.written + len(rows.insert(table, values, upsert, ()))

        author = find_author(self._call, self._actor)
        if author.run_id is None:
            # An import can be undone as a whole, like the writes of an agent's run.
            author = replace(author, run_id=progress.import_id)
        with contextlib.suppress(Rehearsed):
            await write_part(self._call, self._actor, author, write, _Part(request, progress.line, next_progress))
        self._progress = next_progress

    def _fail(self, line: int, error: BaobabError) -> None:
        progress = self._progress
        progress.failed += 1
        if len(progress.errors) < _MOST_SHOWN:
            # A copy, because what was stored with a part must not change later.
            progress.errors = [*progress.errors, {"line": line, "code": error.code, "message": error.message[:300]}]
        if not self._request.skips or progress.failed >= _MOST_FAILED:
            raise ImportStopped(f"Line {line}: {error.message}", details={**error.details, "import": self._report()})

    def _report(self) -> Imported:
        progress = self._progress
        return {
            "written": progress.written,
            "failed": progress.failed,
            "errors": progress.errors,
            "last_line": progress.line,
            "dry_run": self._request.dry_run,
            "import_id": progress.import_id,
        }


async def _read_records(body: Body, records: Records) -> AsyncIterator[Record]:
    """Yields the records of a body as they arrive. Raises BodyTooLarge or BadRequest."""
    too_large = BodyTooLarge(f"An import has at most {MOST_BYTES} bytes.", details={"max_bytes": MOST_BYTES})
    if body.size is not None and body.size > MOST_BYTES:
        raise too_large
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    size = 0
    async for chunk in body.chunks:
        size += len(chunk)
        if size > MOST_BYTES:
            raise too_large
        # A chunk can be as large as the whole body if it does not come from a network.
        for start in range(0, len(chunk), _CHUNK):
            for record in records.feed(_decode(decoder, chunk[start : start + _CHUNK])):
                yield record
            if records.waiting > LONGEST:
                raise BadRequest(f"A line, or a quoted field, has more than {LONGEST} characters.")
    for record in records.feed(_decode(decoder, b"", final=True), final=True):
        yield record


def _decode(decoder: codecs.IncrementalDecoder, chunk: bytes, *, final: bool = False) -> str:
    try:
        return decoder.decode(chunk, final)
    except UnicodeDecodeError as exc:
        raise BadRequest("The file is not UTF-8.", remediation="Save it as UTF-8 and send it again.") from exc


def _read_header(table: TableInfo, record: Record) -> list[str]:
    """Reads the columns of a CSV. Nothing is written if one of them is not in the table."""
    if isinstance(record.content, BrokenRecord):
        raise BadRequest(f"The first line is not a list of columns: {record.content.reason}.")
    names = [(name or "").strip() for name in record.content]
    _require_delimiter(table, names)
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"The first line names the column `{name[:63]}` twice.")
        table.column(name)
    return names


def _require_delimiter(table: TableInfo, names: list[str]) -> None:
    """Raises BadRequest if the first line is one field that another delimiter would split into columns."""
    for delimiter in DELIMITERS:
        parts = [part.strip().strip('"') for part in names[0].split(delimiter)] if len(names) == 1 else []
        if len(parts) > 1 and names[0] not in table.columns and parts[0] in table.columns:
            shown_delimiter = "a tab (%09 in an address)" if delimiter == "\t" else f"`{delimiter}`"
            raise BadRequest(
                f"The first line is one field: its columns are separated by {shown_delimiter}.",
                remediation=f"Send the file again with `delimiter` {shown_delimiter}, or save it with commas.",
            )


def _read_row(table: TableInfo, names: list[str] | None, content: Any) -> Row | None:
    """Returns the row of a record; None for an empty line. Raises BadRequest if a value does not fit its column."""
    if isinstance(content, BrokenRecord):
        raise BadRequest(f"The line cannot be read: {content.reason}.")
    if names is None:
        row: Row = content
        for name in row:
            table.column(name)
    else:
        if content == [None] and len(names) > 1:
            return None
        if len(content) != len(names):
            raise BadRequest(f"The line has {len(content)} fields, and the first line names {len(names)} columns.")
        row = {
            name: None if text is None else _read_field(table.columns[name], text)
            for name, text in zip(names, content, strict=True)
        }
    for name, value in row.items():
        table.columns[name].type.clean(value, name)
    return row


def _read_field(column: Column, text: str) -> Any:
    """Returns a field of CSV as a JSON value. An empty quoted field is an empty text, and null for all types but
    texts.
    """
    kind = column.type
    if kind.is_text:
        return text
    if not text:
        return None
    if not kind.array:
        return _read_value(kind, text, column.name)
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise BadRequest(f"`{column.name}`: an array is written `[1,2]` or `{{1,2}}`.") from exc
    items = parse_array(text, column.name)
    return [None if item is None else _read_value(kind.item, item, column.name) for item in items]


def _read_value(kind: ColumnType, text: str, column: str) -> Any:
    return text if kind.has_text_in_json else kind.parse(text, column)
