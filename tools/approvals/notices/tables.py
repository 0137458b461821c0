"""The rows of notices: what each person wants, where they are told, and what they were told."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table, false

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata


def _of_account(*, primary_key: bool = False) -> Column[str]:
    owner = ForeignKey("accounts.id", ondelete="CASCADE")
    return Column("account_id", String(36), owner, primary_key=primary_key, nullable=False)


notice_settings = Table(
    "notice_settings",
    metadata,
    _of_account(primary_key=True),
    # `mine` or `all`.
    Column("which", String(10), nullable=False),
    Column("digest_minutes", Integer, nullable=False),
    # Times of day as HH:MM in the time zone; null where there are no quiet hours.
    Column("quiet_from", String(5)),
    Column("quiet_until", String(5)),
    Column("time_zone", String(60)),
    Column("escalate_minutes", Integer),
    Column("escalate_to", String(36)),
    Column("last_sent_at", Instant),
    Column("updated_at", Instant, nullable=False),
)

notice_channels = Table(
    "notice_channels",
    metadata,
    Column("id", String(36), primary_key=True),
    _of_account(),
    Column("kind", String(10), nullable=False),
    Column("name", String(100), nullable=False),
    # The part of the address that people see.
    Column("address", String(300), nullable=False),
    # The address itself, which is a credential for some kinds; with the keys of a browser for push.
    Column("target", Sealed, nullable=False),
    # Signs webhooks; of an address that is not confirmed yet, the code that was mailed to it.
    Column("secret", Sealed),
    Column("confirmed", Boolean, nullable=False, server_default=false()),
    Column("created_at", Instant, nullable=False),
    Index("ix_notice_channels_account_id", "account_id"),
)

# One row for each call that waits and each person who is told of it: nobody is told twice.
approval_notices = Table(
    "approval_notices",
    metadata,
    Column("approval_id", String(30), primary_key=True),
    _of_account(primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    # The account that passed it on, if it was escalated.
    Column("escalated_by", String(36)),
    # `waiting`, `told` or `dropped`.
    Column("state", String(10), nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("created_at", Instant, nullable=False, index=True),
    Index("ix_approval_notices_account_id_state_due_at", "account_id", "state", "due_at"),
)

# One row for each message to a channel.
notice_messages = Table(
    "notice_messages",
    metadata,
    Column("id", String(36), primary_key=True),
    _of_account(),
    Column("channel_id", String(36), nullable=False),
    Column("kind", String(10), nullable=False),
    Column("approval_ids", Json, nullable=False),
    Column("status", String(10), nullable=False),
    # Set before an attempt and cleared by its outcome: where a process ended in between, nobody knows the outcome.
    Column("trying_since", Instant),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("error", String(300)),
    Column("created_at", Instant, nullable=False, index=True),
    Column("finished_at", Instant),
    Index("ix_notice_messages_account_id_created_at_id", "account_id", "created_at", "id"),
)

# The key pair by which push services know this installation. Subscriptions of browsers are bound to it.
push_identities = Table(
    "push_identities",
    metadata,
    Column("id", String(20), primary_key=True),
    Column("private_key", Sealed, nullable=False),
    Column("created_at", Instant, nullable=False),
)
