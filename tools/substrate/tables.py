"""The rows of substrates. Each organisation has one, and every key and every question begins with `organisation_id`.

What people see of a table is its name without the prefix `substrate_`: `entities`, `action_ledger`, ...
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Date,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    and_,
    func,
    literal_column,
    text,
    true,
)

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

PREFIX = "substrate_"
STREAMED = frozenset(
    (
        "entities",
        "action_ledger",
        "decisions",
        "commitments",
        "learnings",
        "attention_rules",
        "attention_rule_firings",
    )
)
"""The tables of whose changes the stream tells, by their short names."""

_ID = String(64)
_ORGANISATION = String(36)


def substrate_table(name: str, *columns: Any) -> Table:
    """Builds a table whose rows belong to an organisation and have an id of their own within it."""
    return Table(
        PREFIX + name,
        metadata,
        Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
        Column("id", _ID, primary_key=True),
        Column("created_at", Instant, nullable=False),
        Column("updated_at", Instant, nullable=False),
        *columns,
    )


def index_some(name: str, table: Table, *columns: str, where: ColumnElement[bool], unique: bool = False) -> None:
    """Adds an index that only has the rows which meet a condition, and only serves queries that have it, too: each
    index of a row takes a page of its own in every commit.

    where: without parameters, since databases compare it with the query's text.
    """
    keys = (table.c.organisation_id, *(table.c[column] for column in columns))
    Index(name, *keys, unique=unique, sqlite_where=where, postgresql_where=where)


def _validity() -> tuple[Column[Any], ...]:
    return (
        # From when to when it is true in the world; null for without a bound.
        Column("valid_from", Instant),
        Column("valid_to", Instant),
        # When something later ended it: until then, it was what was known.
        Column("ended_at", Instant),
    )


def _provenance() -> tuple[Column[Any], ...]:
    return (
        # The action that wrote the row last: only the last one can be undone.
        Column("action_id", _ID, nullable=False),
        # Whether text of strangers may be in it.
        Column("from_strangers", Boolean, nullable=False),
    )


settings = Table(
    "substrate_settings",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    Column("yolo_mode", Boolean, nullable=False),
    # Whether a job proposes to consolidate duplicates, and when it has looked for them last.
    Column("propose_consolidations", Boolean, nullable=False, server_default=true()),
    Column("consolidated_at", Instant),
    Column("self_entity_id", _ID, nullable=False),
    Column("provisioned_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    # The number of the last row in `substrate_changes`, and the last moment that any row was given: each is later than
    # the one before, so that a page that ends at a moment leaves nothing out.
    Column("last_seq", BigInteger, nullable=False),
    Column("last_at", Instant, nullable=False),
    # The bytes that count against the plan (quota.py); null until those of an earlier version are counted, and then the
    # other column has what was added meanwhile.
    Column("used_bytes", BigInteger),
    Column("uncounted_bytes", BigInteger, nullable=False, server_default=text("0")),
    # What signs receipts, made at the first; the number of the last one and its digest, which the next one names.
    Column("receipt_key", Sealed),
    Column("last_receipt", BigInteger, nullable=False),
    Column("last_receipt_digest", String(64), nullable=False),
)

changes = Table(
    "substrate_changes",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    # Without gaps, in the order in which they were made.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    # `entities`, `decisions`, ..., and `insert`, `update` or `delete`.
    Column("tbl", String(40), nullable=False),
    Column("op", String(10), nullable=False),
    Column("row_id", _ID, nullable=False),
    # The action that changed the row, and the row as it was before. Both are null where nothing can be undone.
    Column("action_id", _ID),
    Column("before", Json),
    Column("created_at", Instant, nullable=False),
)
_EMPTY: ColumnElement[str] = literal_column("''")
# Not `IS NOT NULL`, of which SQLite makes a search through all changes of the organisation as soon as a query names
# more than two actions or rows.
CAN_BE_UNDONE = func.coalesce(changes.c.action_id, _EMPTY) != _EMPTY
"""Whether an action has made a change. Of the two rows that most proposals write, one has it; queries of the changes
of actions or rows name it.
"""
for _name in ("action_id", "row_id"):
    index_some(f"ix_substrate_changes_{_name}", changes, _name, where=CAN_BE_UNDONE)

action_ledger = substrate_table(
    "action_ledger",
    Column("capability", String(60), nullable=False),
    # `proposed`, `executed`, `rejected`, `failed` or `reverted`.
    Column("status", String(20), nullable=False),
    Column("payload", Json, nullable=False),
    Column("result", Json),
    Column("idempotency_key", String(200)),
    Column("verdict", String(40), nullable=False),
    Column("verdict_reason", String(500), nullable=False),
    Column("reversible", Boolean, nullable=False),
    Column("reverted_by_action_id", _ID),
    # Who proposed it: `human` or `agent`, the credential, the entity, and the app or the rule if it was one of these.
    Column("proposed_by_kind", String(10), nullable=False),
    Column("proposed_by", String(100)),
    # The approved call that proposed it, for a credential that has to ask first.
    Column("approval_id", String(30)),
    Column("proposed_by_entity_id", _ID),
    Column("source_app_id", String(36)),
    Column("source_rule_id", _ID),
    Column("trigger_context", Json),
    Column("from_strangers", Boolean, nullable=False),
    Column("approved_by_kind", String(10)),
    Column("decided_by", String(100)),
    Column("reject_reason", Text),
    # The entities that it is about: `[{entity_id, kind}]`.
    Column("links", Json),
    Column("proposed_at", Instant, nullable=False),
    Column("decided_at", Instant),
    Column("executed_at", Instant),
    Index("ix_substrate_action_ledger_proposed_at", "organisation_id", "proposed_at"),
    Index("ix_substrate_action_ledger_capability", "organisation_id", "capability", "executed_at"),
)
index_some(
    "uq_substrate_action_ledger_idempotency_key",
    action_ledger,
    "idempotency_key",
    where=action_ledger.c.idempotency_key.is_not(None),
    unique=True,
)
IS_NOT_EXECUTED = action_ledger.c.status != literal_column("'executed'")
"""Most actions are executed: a query of those with another status has this condition, too, and finds them at once."""
index_some("ix_substrate_action_ledger_status", action_ledger, "status", "proposed_at", where=IS_NOT_EXECUTED)

receipts = Table(
    "substrate_receipts",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    # Without gaps.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("action_id", _ID, nullable=False),
    # The text that is signed.
    Column("body", Text, nullable=False),
    Column("signature", String(100), nullable=False),
    # The salt of the payload's digest; null if the action was forgotten.
    Column("salt", String(40)),
    Column("created_at", Instant, nullable=False),
    Index("ix_substrate_receipts_action_id", "organisation_id", "action_id"),
)

entities = substrate_table(
    "entities",
    Column("type", String(20), nullable=False),
    Column("display_name", String(500)),
    # The display name as searches compare it: without case, accents and look-alike forms.
    Column("search_name", String(500), nullable=False),
    Column("primary_email", String(250)),
    Column("canonical_keys", Json),
    Column("linked_app_user_id", String(36)),
    Column("linked_app_id", String(36)),
    Column("attrs", Json, nullable=False),
    Column("created_by_entity_id", _ID),
    Column("created_by_kind", String(10)),
    # The entity that this one was merged into. Such a row is an alias: it is in no list, and its keys find the other.
    Column("merged_into", _ID),
    *_provenance(),
    Index("ix_substrate_entities_updated_at", "organisation_id", "updated_at"),
    Index("ix_substrate_entities_merged_into", "organisation_id", "merged_into"),
)
index_some(
    "uq_substrate_entities_primary_email",
    entities,
    "primary_email",
    where=and_(entities.c.primary_email.is_not(None), entities.c.merged_into.is_(None)),
    unique=True,
)

entity_keys = Table(
    "substrate_entity_keys",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    Column("entity_id", _ID, primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("type", String(20), nullable=False),
    Column("value", String(300), nullable=False),
    Index("ix_substrate_entity_keys_value", "organisation_id", "name", "value"),
)
"""The canonical keys of entities one by one, by which an upsert finds them."""

decisions = substrate_table(
    "decisions",
    Column("title", String(500), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("rationale", Text),
    Column("salience", String(20), nullable=False),
    # `active`, `superseded`, `reversed` or `expired`.
    Column("status", String(20), nullable=False),
    Column("supersedes", _ID),
    Column("source_artifact_id", _ID),
    # Of a principle that the policy holds actions to: to which, and what it says.
    Column("applies_to", Json),
    Column("constraint_spec", Json),
    Column("retire_reason", Text),
    *_validity(),
    *_provenance(),
)
IS_PRINCIPLE = decisions.c.kind == literal_column("'principle'")
index_some("ix_substrate_decisions_principles", decisions, "status", "id", where=IS_PRINCIPLE)

commitments = substrate_table(
    "commitments",
    Column("description", Text, nullable=False),
    Column("status", String(20), nullable=False),
    # The id of an entity, or its name in plain words.
    Column("from_entity", String(500)),
    Column("to_entity", String(500)),
    Column("amount", Float),
    Column("unit", String(50)),
    Column("due_at", Instant),
    Column("source_artifact_id", _ID),
    Column("attrs", Json, nullable=False),
    *_validity(),
    *_provenance(),
    Index("ix_substrate_commitments_status", "organisation_id", "status", "due_at"),
)

learnings = substrate_table(
    "learnings",
    Column("title", String(500), nullable=False),
    Column("description", Text, nullable=False),
    Column("resolution_taken", Text),
    Column("related_decision_id", _ID),
    # The learning that this one follows on: what was true before.
    Column("replaces", _ID),
    Column("source_artifact_id", _ID),
    *_validity(),
    *_provenance(),
)

source_artifacts = substrate_table(
    "source_artifacts",
    Column("kind", String(100), nullable=False),
    Column("external_system", String(100)),
    Column("external_id", String(300)),
    Column("title", String(500), nullable=False),
    Column("summary", Text),
    Column("content", Text),
    Column("storage_object_id", String(100)),
    Column("url", String(2000)),
    Column("links", Json),
    Column("attrs", Json, nullable=False),
    Column("source_app_id", String(36)),
    *_provenance(),
    Index("ix_substrate_source_artifacts_updated_at", "organisation_id", "updated_at"),
)
index_some(
    "uq_substrate_source_artifacts_external_id",
    source_artifacts,
    "external_system",
    "external_id",
    where=source_artifacts.c.external_id.is_not(None),
    unique=True,
)

memory = Table(
    "substrate_memory",
    metadata,
    # One number for each row of all organisations, by which the full-text index of SQLite names it.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), nullable=False),
    Column("id", _ID, nullable=False),
    # `decision`, `commitment`, `learning` or `source_artifact`.
    Column("kind", String(20), nullable=False),
    Column("title", String(500), nullable=False),
    Column("body_text", Text, nullable=False),
    # The words of title, text and content as the full-text index has them (sql/full_text.py), separated by spaces.
    Column("words", Text, nullable=False),
    Column("status", String(20)),
    Column("supersedes", _ID),
    Column("source_artifact_id", _ID),
    # The action that wrote it last, and the app or the rule that proposed that one.
    Column("action_id", _ID, nullable=False),
    *_validity(),
    Column("from_strangers", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("uq_substrate_memory_id", "organisation_id", "id", unique=True),
    Index("ix_substrate_memory_updated_at", "organisation_id", "updated_at"),
)
"""What is remembered, of all four kinds: one row for each row of their tables, and made from it."""
for _table in (decisions, commitments, learnings, memory):
    _columns = ("source_artifact_id", "updated_at") if _table is memory else ("source_artifact_id",)
    _comes_from_one = _table.c.source_artifact_id.is_not(None)
    index_some(f"ix_{_table.name}_source_artifact_id", _table, *_columns, where=_comes_from_one)

embeddings = Table(
    "substrate_embeddings",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    # The memory, its number and its kind, and when the version of it was written that the vector is of.
    Column("id", _ID, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("memory_at", Instant, nullable=False),
    # The vector with a signed byte for each dimension, and with a bit for each.
    Column("parts", LargeBinary, nullable=False),
    Column("bits", LargeBinary, nullable=False),
    Index("ix_substrate_embeddings_memory_at", "organisation_id", "memory_at"),
    Index("ix_substrate_embeddings_number", "organisation_id", "number"),
)
"""The vectors of memories, by which they are found by meaning. All can be made again."""

embedding_states = Table(
    "substrate_embedding_states",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    # The model that made the vectors, and the moment up to which all memories have one.
    Column("embedder", String(100), nullable=False),
    Column("embedded_until", Instant, nullable=False),
)

policy_conflicts = substrate_table(
    "policy_conflicts",
    Column("action_id", _ID, nullable=False),
    Column("principle_id", _ID, nullable=False),
    Column("constraint_type", String(30), nullable=False),
    Column("message", String(500), nullable=False),
    # `open` or `resolved`.
    Column("status", String(20), nullable=False),
    Column("resolution", String(30)),
    Column("reason", Text),
    Column("resolved_by", String(100)),
    Column("resolved_at", Instant),
    Index("ix_substrate_policy_conflicts_action_id", "organisation_id", "action_id"),
)

snapshots = Table(
    "substrate_snapshots",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    Column("snapshot_date", Date, primary_key=True),
    Column("counts", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""How many things of each kind there were on a day."""

attention_rules = substrate_table(
    "attention_rules",
    Column("name", String(200), nullable=False),
    Column("description", Text),
    # Five fields, in UTC.
    Column("trigger_cron", String(200), nullable=False),
    # `snapshot_predicate` or `row_query`.
    Column("condition_mode", String(30), nullable=False),
    Column("condition", Json, nullable=False),
    Column("action_capability", String(60), nullable=False),
    Column("action_payload_template", Json, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("max_fires_per_day", Integer),
    # The tick that comes next; null while the rule is disabled. Whoever fires the rule moves it on in the same
    # transaction, so that each tick counts once.
    Column("next_fire_at", Instant, index=True),
)

attention_rule_firings = substrate_table(
    "attention_rule_firings",
    Column("rule_id", _ID, nullable=False),
    # `fired`, `skipped`, `capped` or `error`.
    Column("status", String(20), nullable=False),
    Column("binding_count", Integer, nullable=False),
    Column("action_ids", Json, nullable=False),
    Column("action_count", Integer, nullable=False),
    Column("skip_reason", String(1000)),
    # The tick: the minute that the rule was due at.
    Column("fired_at", Instant, nullable=False),
    Index("ix_substrate_attention_rule_firings_fired_at", "organisation_id", "rule_id", "fired_at"),
    Index("ix_substrate_attention_rule_firings_created_at", "created_at"),
)

outbox_targets = substrate_table(
    "outbox_targets",
    Column("capability", String(60), nullable=False),
    Column("webhook_url", String(2000), nullable=False),
    Column("signing_secret", Sealed, nullable=False),
    # Only actions that this app proposed; null for all.
    Column("source_app_id", String(36)),
    Index("uq_substrate_outbox_targets_capability", "organisation_id", "capability", unique=True),
)

outbox = substrate_table(
    "outbox",
    Column("action_id", _ID, nullable=False),
    Column("capability", String(60), nullable=False),
    # The address of the last try.
    Column("target", String(2000), nullable=False),
    # `pending`, `delivered`, `failed` or `cancelled`.
    Column("state", String(20), nullable=False),
    Column("attempts", Integer, nullable=False),
    # Raised whenever somebody cancels or retries it: the job of an earlier round then has nothing to do.
    Column("round", Integer, nullable=False),
    # The same in all tries, so that receivers can tell a second one.
    Column("delivery_id", String(36), nullable=False),
    Column("last_status", Integer),
    Column("last_error", String(500)),
    Column("next_attempt_at", Instant),
    Column("delivered_at", Instant),
    Index("ix_substrate_outbox_created_at", "organisation_id", "created_at"),
    Index("ix_substrate_outbox_state", "organisation_id", "state", "created_at"),
)

stream_tickets = Table(
    "substrate_stream_tickets",
    metadata,
    Column("organisation_id", _ORGANISATION, ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True),
    # SHA-256 of the ticket. The row goes when the ticket is used.
    Column("digest", String(64), primary_key=True),
    Column("account_id", String(36), nullable=False),
    # The key that got it; null for a person who was signed in. The stream ends when the key is revoked.
    Column("key_id", String(36)),
    Column("expires_at", Instant, nullable=False),
    Index("ix_substrate_stream_tickets_digest", "digest"),
)
