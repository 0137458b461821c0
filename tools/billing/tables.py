"""The rows of credits. All money is integer nano-dollars.

Whoever changes any of an organisation's rows holds the lock of its row in `credit_accounts` first.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Date, ForeignKey, Index, String, Table, Text, exists

from baobab.storage.sql.tables import Instant, metadata
from baobab.tools.core.auth.tables import api_keys

_ID = String(36)


def _of_account(**options: Any) -> Column[str]:
    account = ForeignKey("credit_accounts.organisation_id", ondelete="CASCADE")
    return Column("organisation_id", _ID, account, nullable=False, **options)


credit_accounts = Table(
    "credit_accounts",
    metadata,
    Column("organisation_id", _ID, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    # The first day of the month to which `allowance_used` belongs.
    Column("month", Date, nullable=False),
    Column("allowance_used", BigInteger, nullable=False),
    # The used part of an allowance that is given only once.
    Column("once_used", BigInteger, nullable=False),
    # The unspent top-ups; negative if more was used.
    Column("credits", BigInteger, nullable=False),
    # The sum of the open reservations.
    Column("reserved", BigInteger, nullable=False),
    # The organisation's own terms; null: those of the plan.
    Column("allowance", BigInteger),
    Column("floor", BigInteger),
)

credit_reservations = Table(
    "credit_reservations",
    metadata,
    Column("id", _ID, primary_key=True),
    _of_account(),
    Column("app_id", String(36)),
    Column("key_id", _ID),
    # The agent's run that it is for, and the ids of the agents whose runs that run is part of, separated by spaces.
    Column("run_id", _ID),
    Column("agent_ids", Text),
    Column("purpose", String(40), nullable=False),
    Column("amount", BigInteger, nullable=False),
    # Null while it is open. It was settled if it has a cost, else released.
    Column("cost", BigInteger),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("ended_at", Instant),
)
# Two partial indexes: a reservation is in one of them, and not in the other.
_OPEN, _ENDED = credit_reservations.c.ended_at.is_(None), credit_reservations.c.ended_at.is_not(None)
Index("ix_credit_reservations_open", credit_reservations.c.expires_at, sqlite_where=_OPEN, postgresql_where=_OPEN)
Index("ix_credit_reservations_ended", credit_reservations.c.ended_at, sqlite_where=_ENDED, postgresql_where=_ENDED)
_OF_RUN = credit_reservations.c.run_id.is_not(None)
Index("ix_credit_reservations_run", credit_reservations.c.run_id, sqlite_where=_OF_RUN, postgresql_where=_OF_RUN)

credit_budgets = Table(
    "credit_budgets",
    metadata,
    _of_account(primary_key=True),
    # `app`, `key` or `agent`, and its id. Every agent that spends has a row for the day, with or without a limit.
    Column("subject", String(10), primary_key=True),
    Column("subject_id", _ID, primary_key=True),
    # `day` or `month`.
    Column("period", String(10), primary_key=True),
    Column("most", BigInteger, nullable=False),
    # The first day of the period to which `spent` belongs.
    Column("since", Date, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
)

HAS_BUDGET = (
    exists()
    .where(
        credit_budgets.c.organisation_id == api_keys.c.organisation_id,
        credit_budgets.c.subject == "key",
        credit_budgets.c.subject_id == api_keys.c.id,
    )
    .correlate(api_keys)
    .label("has_budget")
)
"""A column for queries of keys: whether the key has a budget."""

credit_top_ups = Table(
    "credit_top_ups",
    metadata,
    _of_account(primary_key=True),
    Column("reference", String(200), primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
)

credit_usage = Table(
    "credit_usage",
    metadata,
    _of_account(primary_key=True),
    Column("day", Date, primary_key=True),
    # Empty if there is none: a primary key takes no nulls.
    Column("app_id", String(36), primary_key=True),
    Column("key_id", _ID, primary_key=True),
    Column("model", Text, primary_key=True),
    # Whether the customer's own provider key paid for it. Its cost is reported and was not charged.
    Column("byok", Boolean, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
)
