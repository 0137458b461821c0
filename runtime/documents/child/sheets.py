"""xlsx: each sheet is a heading and a table. A formula is read as its stored value."""

import io
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

import python_calamine as calamine

from baobab.runtime.documents.child.archive import Archive
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder

_ERRORS = (calamine.CalamineError, calamine.XmlError, calamine.ZipError, ValueError, OSError)


def read_sheets(archive: Archive, source: bytes, main: str, builder: TextBuilder) -> None:
    if not main.endswith(".xml"):
        raise Refused("This is a binary workbook (xlsb). Save it as xlsx and upload it again.")
    # The name of a sheet is not the document's.
    builder.title = builder.title or ""
    # The library trusts the archive, so its sizes are verified here.
    for name in archive.names:
        archive.read(name)
    try:
        workbook = calamine.CalamineWorkbook.from_filelike(io.BytesIO(source))
        builder.require_pages(len(workbook.sheet_names))
        builder.pages = None
        for sheet in workbook.sheets_metadata:
            if sheet.typ is calamine.SheetTypeEnum.WorkSheet and sheet.visible is calamine.SheetVisibleEnum.Visible:
                builder.add("heading", sheet.name, level=1)
                builder.add_table(_read_rows(workbook.get_sheet_by_name(sheet.name)))
    except calamine.PasswordError as exc:
        raise Refused("The document is protected by a password. Save it without one and upload it again.") from exc
    except _ERRORS as exc:
        raise Refused("The workbook is damaged: its sheets cannot be read.") from exc


def _read_rows(sheet: calamine.CalamineSheet) -> Iterator[list[str]]:
    for row in sheet.iter_rows():
        yield [_write_value(value) for value in row]


def _write_value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds") if value.time() != time() else value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return str(value)
