"""The rows of people, in the database of the app's region: profiles that were read, e-mail lookups, and usage.

All money is integer nano-dollars.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, metadata
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("people")

_ID = String(36)

profiles = Table(
    "people_profiles",
    metadata,
    Column("app_id", _ID, primary_key=True),
    # The digest of the provider and the normalised address (addresses.py).
    Column("key", String(64), primary_key=True),
    Column("network_url", Text, nullable=False),
    # `ok`, `not_found` or `failed`.
    Column("status", String(20), nullable=False),
    # The profile as it was answered; null unless it is `ok`.
    Column("profile", Json),
    Column("expires_at", Instant, nullable=False),
    Index("ix_people_profiles_expires_at", "expires_at"),
)

lookups = Table(
    "people_lookups",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("organisation_id", _ID, nullable=False),
    # Null once the person has been erased.
    Column("network_url", Text),
    # `pending`, `resolved`, `failed` or `expired`.
    Column("status", String(20), nullable=False),
    Column("email", Text),
    # SHA-256 of the secret in the path of the callback.
    Column("token_digest", String(64), nullable=False),
    # The reservation by which the result is charged at most once; null for a simulated lookup, which is free.
    Column("reservation_id", _ID),
    Column("credits", Integer, nullable=False),
    # The price of the result.
    Column("result_credits", Integer, nullable=False),
    Column("result_cost", BigInteger, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("ended_at", Instant),
    # Null while the result of a lookup of another database than the credits' is still to be charged.
    Column("settled_at", Instant),
)
PENDING = lookups.c.status == "pending"
UNSETTLED = lookups.c.ended_at.is_not(None) & lookups.c.settled_at.is_(None)
Index("ix_people_lookups_pending", lookups.c.created_at, sqlite_where=PENDING, postgresql_where=PENDING)
Index("ix_people_lookups_unsettled", lookups.c.ended_at, sqlite_where=UNSETTLED, postgresql_where=UNSETTLED)

usage = Table(
    "people_usage",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("action", String(40), nullable=False),
    Column("credits", Integer, nullable=False),
    # What the provider gets, and what was charged.
    Column("cost", BigInteger, nullable=False),
    Column("charged", BigInteger, nullable=False),
    Column("response_status", Integer, nullable=False),
    # Null for searches, and once the person has been erased.
    Column("network_url", Text),
    Column("simulated", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    # The reservation that is still to be charged, where the credits are in another database; then null.
    Column("reservation_id", _ID),
    Index("ix_people_usage_created_at", "app_id", "created_at"),
)
UNCHARGED = usage.c.reservation_id.is_not(None)
Index("ix_people_usage_uncharged", usage.c.created_at, sqlite_where=UNCHARGED, postgresql_where=UNCHARGED)

APP_TABLES = (AppTable(profiles), AppTable(lookups, counted_as="lookups"), AppTable(usage))
