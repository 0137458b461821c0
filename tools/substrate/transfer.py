"""Export and import as JSON lines: a header, a line for each row, and a signature of all of it."""

import base64
import hashlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic_core import to_json
from sqlalchemy import select

from baobab.storage.sql.database import Database
from baobab.tools.core.types import parse_json
from baobab.tools.substrate import tables
from baobab.tools.substrate.errors import InvalidImport, ProvenanceForged
from baobab.tools.substrate.receipts import decode_public_key, encode_public_key, sign
from baobab.tools.substrate.rows import encode_row

FORMAT = "baobab-substrate/1"
MOST_LINES = 5000
MOST_BYTES = 8 * 2**20
MEDIA_TYPE = "application/x-ndjson"
_PAGE = 500
TABLES = {
    "entities": tables.entities,
    "source_artifacts": tables.source_artifacts,
    "decisions": tables.decisions,
    "commitments": tables.commitments,
    "learnings": tables.learnings,
}
"""In the order in which they are written: what others name comes first."""
FIELDS_OF_ENGINE = frozenset(("organisation_id", "search_name"))
"""Fields of rows that no export has."""
_PROVENANCE = frozenset(
    (
        *("action_id", "from_strangers", "source_app_id", "created_by_kind", "created_by_entity_id"),
        *("created_at", "updated_at", "ended_at"),
    )
)
"""What says where a row comes from: it is believed only where it is signed."""


async def export_lines(
    database: Database, organisation_id: str, key: Ed25519PrivateKey, at: str
) -> AsyncGenerator[bytes, None]:
    """Yields the lines, a page of rows at a time. What changes meanwhile may be there as it was or as it is."""
    digest = hashlib.sha256()

    def keep(lines: Iterable[Mapping[str, Any]]) -> bytes:
        text = b"".join(to_json(line) + b"\n" for line in lines)
        digest.update(text)
        return text

    header = {"format": FORMAT, "organization_id": organisation_id, "at": at, "public_key": encode_public_key(key)}
    yield keep([header])
    for name, table in TABLES.items():
        after = ""
        while True:
            query = select(table).where(table.c.organisation_id == organisation_id, table.c.id > after)
            if name == "entities":
                query = query.where(table.c.merged_into.is_(None), table.c.type != "self")
            async with database.reading() as connection:
                rows = (await connection.execute(query.order_by(table.c.id).limit(_PAGE))).mappings().all()
            if rows:
                yield keep({"table": name, "row": _show_row(table, dict(row))} for row in rows)
            if len(rows) < _PAGE:
                break
            after = rows[-1]["id"]
    sha256 = digest.digest()
    yield to_json({"sha256": sha256.hex(), "signature": sign(key, sha256)}) + b"\n"


def _show_row(table: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in encode_row(table, dict(row)).items() if name not in FIELDS_OF_ENGINE}


@dataclass(frozen=True, slots=True)
class Parcel:
    """Holds the rows of an import. is_signed: by the organisation or by a trusted key; then provenance counts."""

    rows: list[tuple[str, dict[str, Any]]]
    sha256: str
    is_signed: bool


def parse_lines(text: bytes, trusted_keys: frozenset[str]) -> Parcel:
    """Reads an export. trusted_keys: the public keys whose signatures count. Raises InvalidImport, ProvenanceForged.

    Without a signature, rows may be written by hand; then none may say where it comes from.
    """
    lines = text.splitlines(keepends=True)
    if not lines or len(lines) > MOST_LINES + 2:
        raise InvalidImport(f"An import has from 1 to {MOST_LINES} rows.")
    records = [_parse_line(number, line) for number, line in enumerate(lines, 1)]
    header = records.pop(0) if "format" in records[0] else None
    footer = records.pop() if records and "signature" in records[-1] else None
    if header is not None and header.get("format") != FORMAT:
        raise InvalidImport(f"Line 1: the format is {FORMAT}.")
    signed_bytes = b"".join(lines[:-1]) if footer is not None else text
    sha256 = hashlib.sha256(signed_bytes).digest()
    is_signed = footer is not None or (header is not None and "public_key" in header)
    if is_signed:
        _check_signature(header, footer, sha256, trusted_keys)
    rows: list[tuple[str, dict[str, Any]]] = []
    for number, record in enumerate(records, 1 if header is None else 2):
        table, row = record.get("table"), record.get("row")
        if not isinstance(table, str) or table not in TABLES or not isinstance(row, dict):
            raise InvalidImport(f"Line {number}: it has `table`, one of {', '.join(TABLES)}, and `row`.")
        provenance = sorted(_PROVENANCE & row.keys())
        if provenance and not is_signed:
            raise ProvenanceForged(
                f"Line {number}: `{provenance[0]}` says where the row comes from, and nobody signed it."
            )
        rows.append((table, row))
    return Parcel(rows, sha256.hex(), is_signed)


def _parse_line(number: int, line: bytes) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as exc:
        raise InvalidImport(f"Line {number} is not JSON.") from exc
    if not isinstance(record, dict):
        raise InvalidImport(f"Line {number} is not a JSON object.")
    return record


def _check_signature(header: Any, footer: Any, sha256: bytes, trusted_keys: frozenset[str]) -> None:
    if header is None or footer is None:
        raise ProvenanceForged("The file was signed, and its first or last line is missing.")
    public_key, signature = header.get("public_key"), footer.get("signature")
    if public_key not in trusted_keys:
        raise ProvenanceForged("The file is signed with a key that is neither yours nor the one that you trust.")
    try:
        decode_public_key(public_key).verify(base64.b64decode(str(signature), validate=True), sha256)
    except (ValueError, InvalidSignature) as exc:
        raise ProvenanceForged("The signature is not that of these lines.") from exc
    if footer.get("sha256") != sha256.hex():
        raise ProvenanceForged("The digest is not that of these lines.")
