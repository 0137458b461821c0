"""Capabilities that prepare messages to people. The platform sends nothing itself: the outbox notifies its targets."""

from baobab.tools.substrate.capabilities.capability import ActionContext, Plan, capability
from baobab.tools.substrate.capabilities.schemas import PlaceCall, SendEmailDraft
from baobab.tools.substrate.ledger import Ledger


@capability(needs_approval=True, yolo=True, side_effect=True)
async def send_email_draft(ledger: Ledger, payload: SendEmailDraft, action: ActionContext) -> Plan:
    """Have an e-mail sent, by whoever takes the deliveries of this capability."""
    del ledger, action
    return Plan({"status": "drafted", "to": payload.to})


@capability(needs_approval=True, side_effect=True)
async def place_call(ledger: Ledger, payload: PlaceCall, action: ActionContext) -> Plan:
    """Have a telephone call made, by whoever takes the deliveries of this capability."""
    del ledger, action
    return Plan({"status": "requested", "to": payload.to})
