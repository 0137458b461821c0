"""/export and /import: a substrate's rows as JSON lines."""

from typing import Annotated, cast

from baobab.tools.core import Call, Mcp, NotSecret, Rest, Text
from baobab.tools.core.stream import Body, Stream
from baobab.tools.substrate import proposals
from baobab.tools.substrate.access import DECIDERS, organisation_of, proposer_of, require_person
from baobab.tools.substrate.errors import (
    AgentsDoNotDecide,
    HeldByPrinciple,
    InvalidImport,
    MemoryFull,
    NotLines,
    ProvenanceForged,
)
from baobab.tools.substrate.importing import CAPABILITY, plan_import
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.receipts import encode_public_key, require_key
from baobab.tools.substrate.schemas import Proposal
from baobab.tools.substrate.toolset import substrate
from baobab.tools.substrate.transfer import MEDIA_TYPE, MOST_BYTES, export_lines, parse_lines

_PublicKey = Annotated[str, Text(44, min_length=44), NotSecret("the public half of a key")]


@substrate.tool(
    "POST /export",
    access=DECIDERS,
    effect="write",
    raises=(AgentsDoNotDecide,),
    rest=Rest(media_type=MEDIA_TYPE),
    mcp=Mcp(offered=False),
)
async def substrate_export(call: Call) -> str:
    """Export entities and memories as JSON lines, signed with the key of the receipts. Only a person can call it."""
    require_person(call)
    organisation_id, services = organisation_of(call), call.services
    async with open_ledger(call.unit, services, organisation_id) as ledger:
        key = await require_key(call.unit, services.vault, ledger.settings)
    return cast(str, Stream(export_lines(services.database, organisation_id, key, call.now.isoformat()), MEDIA_TYPE))


@substrate.tool(
    "POST /import",
    access=DECIDERS,
    effect="write",
    raises=(AgentsDoNotDecide, HeldByPrinciple, InvalidImport, MemoryFull, NotLines, ProvenanceForged),
    rest=Rest(raw_body="lines", query=("trusted_key",), max_body=MOST_BYTES),
    mcp=Mcp(offered=False),
)
async def substrate_import(call: Call, lines: Body, trusted_key: _PublicKey | None = None) -> Proposal:
    """Import entities and memories from JSON lines, as one action that can be undone. Only a person can call it.

    Rows that exist already are skipped. Unsigned rows are marked as text from strangers.

    lines: at most 5000 rows and 8 MB.
    trusted_key: the public key of another substrate whose signature counts like your own; null for none.
    """
    require_person(call)
    if lines.content_type.partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise NotLines
    text = bytearray()
    async for chunk in lines.chunks:
        text += chunk
        if len(text) > MOST_BYTES:
            raise InvalidImport(f"An import has at most {MOST_BYTES} bytes.")
    organisation_id, services = organisation_of(call), call.services
    async with open_ledger(call.unit, services, organisation_id) as ledger:
        key = await require_key(call.unit, services.vault, ledger.settings)
        # In a query, a plus sign that nobody has escaped is a space, of which a key has none.
        sent_key = None if trusted_key is None else trusted_key.replace(" ", "+")
        trusted_keys = frozenset(filter(None, (encode_public_key(key), sent_key)))
        parcel = parse_lines(bytes(text), trusted_keys)
        payload = {"sha256": parcel.sha256, "rows": len(parcel.rows), "is_signed": parcel.is_signed}
        proposer = proposer_of(call)
        action = proposals.build_context(ledger, proposer)
        plan = await plan_import(ledger, parcel, action)
        return await proposals.carry_out_directly(ledger, proposer, action, CAPABILITY, payload, plan)
