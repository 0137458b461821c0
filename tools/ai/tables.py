"""The tables of models: apps' settings, organisations' keys and servers, and cached answers."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

app_ai = Table(
    "app_ai",
    metadata,
    Column("id", String(36), ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True),
    Column("default_model", String(200)),
    Column("max_tokens", Integer),
    Column("allowed_models", Json, nullable=False),
    Column("fallback_models", Json, nullable=False),
    Column("byok_key", Sealed),
    Column("byok_provider", String(60)),
    Column("byok_last4", String(4)),
    # Those of timeouts.py that it has.
    Column("timeouts", Json),
    Column("drop_params", Boolean),
    Column("updated_at", Instant, nullable=False),
)

provider_keys = Table(
    "provider_keys",
    metadata,
    # `<organisation>:<provider>`: there is one key for each, and its seal is bound to both.
    Column("id", String(100), primary_key=True),
    Column(
        "organisation_id", String(36), ForeignKey("organisations.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    Column("provider", String(60), nullable=False),
    Column("key", Sealed, nullable=False),
    Column("last4", String(4), nullable=False),
    Column("updated_at", Instant, nullable=False),
)

model_servers = Table(
    "model_servers",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), ForeignKey("organisations.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(32), nullable=False),
    Column("url", String(500), nullable=False),
    Column("key", Sealed),
    Column("last4", String(4)),
    # Its models as it last listed them: names, each with its context window or null.
    Column("models", Json, nullable=False),
    # Those of timeouts.py that it has.
    Column("timeouts", Json),
    # Why it did not list its models at the last check.
    Column("problem", String(200)),
    Column("probed_at", Instant, nullable=False),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("organisation_id", "name"),
)

response_cache = Table(
    "response_cache",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    Column("app_id", String(36), index=True),
    Column("kept_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("size", Integer, nullable=False),
    # Sealed, but not sealed again when the key is rotated: digests change with the key, so older rows are never found
    # again and expire.
    Column("answer", Text, nullable=False),
    # Lets an organisation's answers be counted without reading them.
    Index("ix_response_cache_organisation_id_kept_at_size", "organisation_id", "kept_at", "size"),
)
