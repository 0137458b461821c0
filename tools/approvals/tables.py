"""The rows of approvals, and how their secret columns are sealed."""

from dataclasses import dataclass

from sqlalchemy import Boolean, Column, Index, Integer, String, Table, text
from sqlalchemy import Text as LongText

from baobab.storage.secrets import Vault
from baobab.storage.sql.tables import Instant, Json, Sealed, metadata

NOTICE = "approvals"
"""The topic of the notice that a call waits, or has been decided or made; its subject is the organisation."""

approvals = Table(
    "approvals",
    metadata,
    Column("id", String(30), primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    Column("account_id", String(36), nullable=False),
    Column("app_id", String(36)),
    # The credential that proposed the call, as `key:<id>`. It never decides about the call.
    Column("proposer", String(60), nullable=False),
    Column("caller", Json, nullable=False),
    Column("tool", String(128), nullable=False),
    Column("tool_version", String(16), nullable=False),
    Column("effect", String(20), nullable=False),
    Column("door", String(20), nullable=False),
    Column("request_id", String(80), nullable=False),
    # Erased as soon as the call can no longer be executed.
    Column("arguments", Sealed, nullable=False),
    Column("arguments_digest", String(64), nullable=False),
    # The arguments as the approver reads them: without secrets, long ones cut. Summaries are made from them on read.
    Column("fields", Sealed),
    Column("status", String(20), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("decided_at", Instant),
    Column("decided_by", String(36)),
    Column("decided_with", String(60)),
    Column("reason", LongText),
    Column("finished_at", Instant),
    # Erased when it was handed out, or after a day.
    Column("result", Sealed),
    Column("error", Json),
    # The write of rows that the executed call made, by which it is undone.
    Column("action_id", String(20)),
    Column("collected_at", Instant),
    # The agent's run that continues when this call has an outcome.
    Column("run_id", String(36)),
    Column("tainted", Boolean),
    Column("agent", String(100)),
    # The node of its graph that makes the call; empty for a call that a model wants.
    Column("node", String(200)),
    # Whether the approver changed the arguments.
    Column("edited", Boolean),
    # Who may decide (deciders.py), how many of them must agree, who has agreed, and who started the run.
    Column("approvers", String(120)),
    Column("persons", Integer),
    Column("agreed", Json),
    Column("starter", String(100)),
    # The arguments that the approver changed, without secrets; kept as long as the row.
    Column("used", Sealed),
    # The digest of what the arguments refer to, from when the call was proposed (Tool.meaning).
    Column("meaning", String(64)),
    # Of a call with the app's right: which node lends it, what may be edited, who may not decide (core/app_rights.py).
    Column("app_right", Json),
    # For a question: what the write that follows it is made of, until it is answered; then the digest of the one call
    # that the answer approves, until the run makes it (consents.py).
    Column("announced", Sealed),
    Column("consent", String(64)),
    # `fields` of the call as it was proposed, if the approver changed the arguments.
    Column("asked_fields", Sealed),
    # What the title and the excerpt are made of: the templates of the node that asks, and the label of the row.
    Column("ask", Sealed),
    # What the run had read, and why whoever approves is warned (texts.py).
    Column("reading", Sealed),
    # What the executed call said beside its result, such as which keys it left out.
    Column("warnings", Sealed),
    Index("ix_approvals_organisation_id_created_at", "organisation_id", "created_at"),
    Index("ix_approvals_run_id", "run_id"),
    Index("ix_approvals_status_expires_at", "status", "expires_at"),
    Index("ix_approvals_proposer_request_id", "proposer", "request_id"),
    # A call that is proposed twice at the same time is one row.
    Index(
        "uq_approvals_pending",
        "proposer",
        "tool",
        "tool_version",
        "arguments_digest",
        unique=True,
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
)


@dataclass(frozen=True, slots=True)
class FieldCipher:
    """Encrypts columns of approvals. A ciphertext can be read only in its own row and column."""

    vault: Vault

    def seal(self, approval_id: str, column: str, value: str) -> str:
        return self.vault.seal(value.encode(), f"approvals.{column}:{approval_id}")

    def open(self, approval_id: str, column: str, value: str) -> str:
        return self.vault.open(value, f"approvals.{column}:{approval_id}").decode()

    def without_arguments(self, approval_id: str) -> dict[str, str | None]:
        """Returns the values that erase the arguments of a row; key rotation expects that the column is never empty."""
        return {"arguments": self.seal(approval_id, "arguments", "{}"), "announced": None, "ask": None}
