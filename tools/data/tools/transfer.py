"""/v1/{app_id}/data-export and /data-import: the rows of a table as a file, in CSV or JSON lines."""

from typing import Annotated, Any, Literal, Unpack, cast

from pydantic import Field

from baobab.tools.core import AppId, AppOwner, Call, Guard, Rest, Text
from baobab.tools.core.errors import AppPaused, BodyTooLarge
from baobab.tools.core.stream import Body, OrText, Places, Stream
from baobab.tools.data.access import ACCESS, find_actor
from baobab.tools.data.errors import AnswerTooLarge, ImportNotText, ImportOvertaken, ImportStopped, TooManyExports
from baobab.tools.data.exchange.csv_rows import MEDIA_TYPE as CSV
from baobab.tools.data.exchange.exporting import Export, ExportRequest
from baobab.tools.data.exchange.importing import MOST_BYTES, Import, ImportRequest
from baobab.tools.data.fields import (
    AS_HEADERS,
    KEY_HEADER,
    READ_ERRORS,
    UNDO,
    WRITE_ERRORS,
    WRITTEN,
    Filters,
    Prefer,
    SelectText,
    TableName,
)
from baobab.tools.data.queries.preferences import read_preferences
from baobab.tools.data.rows.attempts import read_attempt
from baobab.tools.data.rows.ignored_names import warn_of_ignored_columns
from baobab.tools.data.rows.transactions import find_catalogue
from baobab.tools.data.schemas import ActingAs, Imported, WriteOptions
from baobab.tools.data.toolset import data

_JSON_LINES = "application/x-ndjson"
_MOST_TEXT = 2**20
"""The most characters of a file that is sent or answered as a text, over MCP."""
_PLACES = Places(of_subject=8, of_caller=4, refusal=TooManyExports)

Format = Annotated[Literal["csv", "jsonl"], Field(description="CSV, or JSON lines: an object on each line.")]


@data.tool(
    "GET /data-export/{table}",
    access=ACCESS,
    effect="read",
    raises=(*READ_ERRORS, TooManyExports),
    taints=True,
    rest=Rest(
        further_query="where",
        query=("format", *AS_HEADERS),
        from_headers=AS_HEADERS,
        media_type="text/csv; charset=utf-8",
    ),
)
async def data_export(
    call: Call,
    app_id: AppId,
    table: TableName,
    format: Format = "csv",
    select: SelectText | None = None,
    where: Filters | None = None,
    escape_formulas: bool = False,
    **acting: Unpack[ActingAs],
) -> str:
    """Export the rows of a table that the caller may see as a file, in the order of their keys.

    Over MCP the file has at most 1 MB, which is read in parts.

    select: columns of the table; left out, all.
    where: filters by column, as data_list has them.
    escape_formulas: put an apostrophe before texts that a spreadsheet would run as a formula.
    """
    request = ExportRequest(table, select, where, format, escape_formulas)
    pieces = await Export(call, find_actor(call, acting), request).start()
    await warn_of_ignored_columns(call, table, select)
    if call.context.streams:
        media_type = CSV if format == "csv" else _JSON_LINES
        return cast(str, Stream(pieces, media_type, subject=f"export:{app_id}", places=_PLACES))
    text = ""
    async for piece in pieces:
        text += piece.decode()
        if len(text) > _MOST_TEXT:
            await pieces.aclose()
            raise AnswerTooLarge(
                f"The export has more than {_MOST_TEXT} characters; over REST it may be of any size.",
                remediation="Name fewer columns in `select`, narrow the rows with `where`, or export over REST.",
            )
    return text


async def _preview_import(call: Call, app_id: AppId, table: str, content: Body, **arguments: Any) -> str:
    (await find_catalogue(call)).table(table)
    if content.text is not None:
        await data_import(call, app_id, table, content, **{**arguments, "dry_run": True})
        # A long file is written, and undone, part by part: one that was tried does not show it for all.
        call.is_undoable = None
    return f"It would import a file into `{table}` ({arguments['format']}):\n{content.text}"[:4000]


async def _require_text(call: Call, *, content: Body, **arguments: Any) -> str:
    """Runs before a person is asked for approval, because the file must still be there when the call runs."""
    del call, arguments
    if content.text is None:
        raise ImportNotText
    return ""


@data.tool(
    "POST /data-import/{table}",
    access=AppOwner(),
    effect="write",
    raises=(*WRITE_ERRORS, ImportStopped, ImportOvertaken, ImportNotText, AppPaused, BodyTooLarge),
    audit=WRITTEN,
    rest=Rest(
        raw_body="content",
        query=("format", "delimiter", "on_conflict", "prefer", "skip_errors", "dry_run", *KEY_HEADER, *AS_HEADERS),
        from_headers={**AS_HEADERS, **KEY_HEADER, "prefer": "prefer"},
        max_body=MOST_BYTES,
    ),
    guard=Guard(overwrites=True, preview=_preview_import, meaning=_require_text, undone_by=UNDO),
)
async def data_import(
    call: Call,
    app_id: AppId,
    table: TableName,
    content: Annotated[Body, OrText(_MOST_TEXT)],
    format: Format = "csv",
    delimiter: Literal[",", ";", "\t", "|"] = ",",
    on_conflict: Annotated[str, Text(1000)] | None = None,
    prefer: Prefer = "",
    skip_errors: bool = False,
    dry_run: bool = False,
    **options: Unpack[WriteOptions],
) -> Imported:
    """Import a file of rows into a table. Its lines are written in parts, in their order.

    The first line of a CSV names the columns. A line that cannot be written ends the import: the lines before it are
    written, and the error says which line it is and why. Send it again with the same idempotency key to continue
    after the last line written.

    content: the file, in UTF-8, at most 1 GB; over MCP its text, at most 1 MB.
    delimiter: what separates the fields of a CSV.
    on_conflict: columns of a key or unique index; a row with the same values is updated instead.
    prefer: `resolution=ignore-duplicates` keeps existing rows as they are.
    skip_errors: skip lines that cannot be written, at most 1000.
    dry_run: only tell what would happen. Lines are checked against the rows that are there, 500 at a time.
    """
    app = call.require_app()
    if app.is_paused:
        raise AppPaused(app.paused_reason)
    actor = find_actor(call, options)
    if not call.unit.is_untouched:
        # Each part has a transaction of its own, which must not wait for the call's while the file arrives.
        await call.unit.commit()
    identity = [table, format, on_conflict, prefer, *([delimiter] if delimiter != "," else [])]
    attempt = read_attempt(call, actor, options, identity)
    request = ImportRequest(
        table, format, on_conflict, read_preferences(prefer), skip_errors, dry_run, attempt, delimiter
    )
    result = await Import(call, actor, request).run(content)
    call.audit.resource_id = table
    return result
