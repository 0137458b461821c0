"""Rows of a substrate as JSON, as changes keep them and exports write them."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Table

from baobab.storage.sql.tables import Instant

Row = dict[str, Any]


def encode_row(table: Table, row: Mapping[str, Any]) -> Row:
    """Returns a row as JSON; `decode_row` is the way back."""
    # SQLAlchemy's names are a subclass of `str`, with which pydantic takes a hundred times as long to write JSON.
    encoded_row = {str(name): value for name, value in row.items() if name != "organisation_id"}
    for name in _list_instants(table):
        if isinstance(value := encoded_row.get(name), datetime):
            encoded_row[name] = value.isoformat()
    return encoded_row


def decode_row(table: Table, encoded_row: Mapping[str, Any]) -> Row:
    row = {column.name: None for column in table.columns if column.name != "organisation_id"} | dict(encoded_row)
    for name in _list_instants(table):
        if isinstance(value := row.get(name), str):
            row[name] = datetime.fromisoformat(value)
    return row


@cache
def _list_instants(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if isinstance(column.type, Instant))
