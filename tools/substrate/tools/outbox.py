"""/outbox-targets and /outbox: who is told of executed actions, and what became of each delivery."""

from typing import Annotated, Any, Literal, cast

from pydantic import Field
from sqlalchemy import delete, insert, select, update

from baobab.runtime.net.egress import AddressRefused, Egress, UrlRefused
from baobab.tools.core import AppId, Call, Guard, Rest, Secret, Text
from baobab.tools.core.guard.escaping import escape_text
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.types import Moment
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, DECIDERS, organisation_of, require_person
from baobab.tools.substrate.capabilities import fields
from baobab.tools.substrate.capabilities.capability import find_capability
from baobab.tools.substrate.errors import (
    AgentsDoNotDecide,
    DeliveryNotFound,
    TargetNotFound,
    UnknownCapability,
    WrongStatus,
)
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.outbox import ask_for_delivery, seal_context
from baobab.tools.substrate.schemas import CapabilityName, Deleted, Outbox, OutboxRow, OutboxTarget, OutboxTargets
from baobab.tools.substrate.toolset import substrate

_targets, _outbox = tables.outbox_targets, tables.outbox
OutboxId = Annotated[str, Text(29, pattern=r"^ob_[0-9A-Z]{26}$"), Field(description="The delivery.")]
TargetCapability = Annotated[CapabilityName, Field(description="The capability.", examples=["send_email_draft"])]
SigningSecret = Annotated[str, Secret(500, min_length=8)]
State = Literal["pending", "delivered", "failed", "cancelled"]


@substrate.tool(
    "GET /outbox-targets",
    access=CALLERS,
    effect="read",
)
async def substrate_outbox_targets(call: Call) -> OutboxTargets:
    """List the addresses that are notified of executed actions, without their secrets."""
    query = select(_targets).where(_targets.c.organisation_id == organisation_of(call))
    rows = await call.execute(query.order_by(_targets.c.capability))
    return {"targets": [_render_target(row) for row in rows.mappings()]}


@substrate.tool(
    "PUT /outbox-targets/{capability}",
    access=DECIDERS,
    effect="write",
    raises=(UnknownCapability, AddressRefused, UrlRefused, AgentsDoNotDecide),
    rest=Rest(examples={"webhook_url": "https://example.com/sent", "signing_secret": "a long random text"}),
    guard=Guard(widens={"webhook_url": whatever_is_given}),
)
async def substrate_outbox_target_put(
    call: Call,
    capability: TargetCapability,
    webhook_url: fields.Url,
    signing_secret: SigningSecret,
    source_app_id: AppId | None = None,
) -> OutboxTarget:
    """Set the address that is notified of each executed action of a capability. Only a person can call it.

    webhook_url: gets a POST of `{action_id, capability, payload, executed_at}`. Private addresses are refused.
    signing_secret: signs the body, HMAC-SHA-256 in `X-Platform-Signature`. It is stored encrypted and never shown.
    source_app_id: only actions that this app proposed.
    """
    require_person(call)
    find_capability(capability)
    http_client = call.services.http_client
    assert isinstance(http_client, Egress)
    # An address is looked at now, a name whenever it is called.
    http_client.check_url(webhook_url)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        of_target = (_targets.c.organisation_id == ledger.organisation_id, _targets.c.capability == capability)
        before: Any = (await call.execute(select(_targets).where(*of_target))).mappings().first()
        target_id = ledger.new_id("tgt") if before is None else before["id"]
        sealed_secret = call.services.vault.seal(signing_secret.encode(), seal_context(target_id))
        row: dict[str, Any] = {"capability": capability, "webhook_url": webhook_url, "signing_secret": sealed_secret}
        row |= {"source_app_id": source_app_id, "updated_at": call.now}
        if before is None:
            row |= {"id": target_id, "created_at": row["updated_at"]}
            await call.execute(insert(_targets), {**row, "organisation_id": ledger.organisation_id})
        else:
            await call.execute(update(_targets).where(*of_target).values(row))
    call.audit.resource_id = capability
    return _render_target({**(before or {}), **row})


async def _preview_delete(call: Call, capability: TargetCapability) -> str:
    of_target = (_targets.c.organisation_id == organisation_of(call), _targets.c.capability == capability)
    url = (await call.execute(select(_targets.c.webhook_url).where(*of_target))).scalar_one_or_none()
    if url is None:
        raise TargetNotFound
    return f"It would tell {escape_text(url)} of no further {capability}, and cancel what was not delivered yet."


@substrate.tool(
    "DELETE /outbox-targets/{capability}",
    access=DECIDERS,
    effect="destructive",
    raises=(TargetNotFound, AgentsDoNotDecide),
    guard=Guard(preview=_preview_delete),
)
async def substrate_outbox_target_delete(call: Call, capability: TargetCapability) -> Deleted:
    """Remove the target of a capability; pending deliveries are cancelled. Only a person can call it."""
    require_person(call)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        organisation_id = ledger.organisation_id
        delete_target = delete(_targets).where(
            _targets.c.organisation_id == organisation_id, _targets.c.capability == capability
        )
        if (await call.execute(delete_target)).rowcount != 1:
            raise TargetNotFound
        pending = (
            _outbox.c.organisation_id == organisation_id,
            _outbox.c.capability == capability,
            _outbox.c.state == "pending",
        )
        cancellation = {"state": "cancelled", "next_attempt_at": None, "updated_at": call.now}
        await call.execute(update(_outbox).where(*pending).values(cancellation))
    call.audit.resource_id = capability
    return {"deleted": True}


@substrate.tool(
    "GET /outbox",
    access=CALLERS,
    effect="read",
)
async def substrate_outbox(
    call: Call,
    state: State | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
    before: Moment | None = None,
) -> Outbox:
    """List deliveries of executed actions, the latest first.

    state: `failed` for those that were given up.
    limit: how many at most.
    before: only those made before this moment; the `next_before` of the previous page.
    """
    query = select(_outbox).where(_outbox.c.organisation_id == organisation_of(call))
    if state is not None:
        query = query.where(_outbox.c.state == state)
    whole_query = query
    if before is not None:
        query = query.where(_outbox.c.created_at < before)
    query = query.order_by(_outbox.c.created_at.desc(), _outbox.c.id.desc()).limit(limit + 1)
    rows: Any = (await call.execute(query)).mappings().all()
    await count_list(call, call.execute, whole_query, is_all=before is None and len(rows) <= limit)
    page = rows[:limit]
    next_before = page[-1]["created_at"] if len(rows) > limit else None
    return {"outbox": [_render(row) for row in page], "next_before": next_before}


@substrate.tool(
    "POST /outbox/{outbox_id}/cancel",
    access=DECIDERS,
    effect="write",
    raises=(DeliveryNotFound, WrongStatus, AgentsDoNotDecide),
)
async def substrate_outbox_cancel(call: Call, outbox_id: OutboxId) -> OutboxRow:
    """Cancel a delivery that is pending: it is not tried again. Only a person can call it."""
    require_person(call)
    return await _change(call, outbox_id, ("pending",), {"state": "cancelled", "next_attempt_at": None})


@substrate.tool(
    "POST /outbox/{outbox_id}/retry",
    access=DECIDERS,
    effect="external",
    raises=(DeliveryNotFound, WrongStatus, AgentsDoNotDecide),
)
async def substrate_outbox_retry(call: Call, outbox_id: OutboxId) -> OutboxRow:
    """Send a delivery that was given up or cancelled again, with the same delivery id. Only a person can call it."""
    require_person(call)
    values = {"state": "pending", "attempts": 0, "next_attempt_at": call.now, "delivered_at": None}
    return await _change(call, outbox_id, ("failed", "cancelled"), values)


async def _change(call: Call, outbox_id: str, states: tuple[str, ...], values: dict[str, Any]) -> OutboxRow:
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        of_delivery = (_outbox.c.organisation_id == ledger.organisation_id, _outbox.c.id == outbox_id)
        row: Any = (await call.execute(select(_outbox).where(*of_delivery))).mappings().first()
        if row is None:
            raise DeliveryNotFound
        # The job that tries it holds no lock, so the state is asked for once more where it is changed.
        values |= {"updated_at": call.now, "round": row["round"] + 1}
        change = update(_outbox).where(*of_delivery, _outbox.c.state.in_(states)).values(values)
        if (await call.execute(change)).rowcount != 1:
            raise WrongStatus(f"The delivery is {row['state']}.", details={"status": row["state"]})
        after = {**row, **values}
        if after["state"] == "pending":
            await ask_for_delivery(call.unit, call.services, after)
    call.audit.resource_id = outbox_id
    return _render(after)


def _render_target(row: Any) -> OutboxTarget:
    return cast(OutboxTarget, {name: row[name] for name in OutboxTarget.__annotations__})


def _render(row: Any) -> OutboxRow:
    return cast(OutboxRow, {name: row[name] for name in OutboxRow.__annotations__})
