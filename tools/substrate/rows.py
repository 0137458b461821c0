"""Rows of a substrate as JSON, as changes keep them and exports write them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Table

from baobab.storage.tables import Instant

Row = dict[str, Any]


def encode_row(table: Table, row: Mapping[str, Any]) -> Row:
    """A row as JSON; `decode_row` is the way back."""
    encoded = {name: value for name, value in row.items() if name != "organisation_id"}
    for column in table.columns:
        if isinstance(column.type, Instant) and isinstance(encoded.get(column.name), datetime):
            encoded[column.name] = encoded[column.name].isoformat()
    return encoded


def decode_row(table: Table, encoded: Mapping[str, Any]) -> Row:
    row = {column.name: None for column in table.columns if column.name != "organisation_id"} | dict(encoded)
    for column in table.columns:
        if isinstance(column.type, Instant) and isinstance(row.get(column.name), str):
            row[column.name] = datetime.fromisoformat(row[column.name])
    return row
