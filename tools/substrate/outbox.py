"""The outbox: what is told to the targets that an organisation has registered."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.substrate.ledger import Ledger


async def deliver_executed(ledger: Ledger, action: Mapping[str, Any]) -> None:
    """Writes down the deliveries of an action that was executed, in the transaction that executes it.

    action: its row in the ledger.
    """
