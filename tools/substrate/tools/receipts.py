"""/receipts: signed receipts of actions."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from baobab.tools.core import Call
from baobab.tools.core.listing import Listing
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, organisation_of
from baobab.tools.substrate.receipts import encode_public_key, open_key
from baobab.tools.substrate.schemas import Receipts
from baobab.tools.substrate.toolset import substrate

_rows = tables.receipts.c


@substrate.tool(
    "GET /receipts",
    access=CALLERS,
    effect="read",
    listing=Listing("receipts"),
)
async def substrate_receipts(
    call: Call,
    after: Annotated[int, Field(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
) -> Receipts:
    """List the signed receipts of decided actions, the first one first. Each names the digest of the one before.

    after: only those after this number; the `next_after` of the previous page.
    limit: how many at most.
    """
    organisation_id = organisation_of(call)
    query = select(tables.settings).where(tables.settings.c.organisation_id == organisation_id)
    settings = (await call.execute(query)).first()
    key = None if settings is None else open_key(call.services.vault, settings)
    query_receipts = select(_rows.seq, _rows.body, _rows.signature, _rows.salt)
    query_receipts = query_receipts.where(_rows.organisation_id == organisation_id, _rows.seq > after)
    rows = (await call.execute(query_receipts.order_by(_rows.seq).limit(limit + 1))).all()
    return {
        "public_key": None if key is None else encode_public_key(key),
        "receipts": [
            {"seq": row.seq, "body": row.body, "signature": row.signature, "salt": row.salt} for row in rows[:limit]
        ],
        "next_after": rows[limit - 1].seq if len(rows) > limit else None,
    }
