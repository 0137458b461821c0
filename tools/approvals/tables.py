"""The rows of approvals, and how their secret columns are sealed."""

from dataclasses import dataclass

from sqlalchemy import Boolean, Column, Index, Integer, String, Table, text
from sqlalchemy import Text as LongText

from baobab.storage.secrets import Vault
from baobab.storage.tables import Instant, Json, Sealed, metadata

approvals = Table(
    "approvals",
    metadata,
    Column("id", String(30), primary_key=True),
    Column("organisation_id", String(36), nullable=False),
    Column("account_id", String(36), nullable=False),
    Column("app_id", String(36)),
    # Who proposed it, as `key:<id>`; such a credential never decides.
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
    # The arguments as whoever decides reads them, without secrets and cut: what a summary is made of when it is read.
    Column("fields", Sealed),
    Column("status", String(20), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("decided_at", Instant),
    Column("decided_by", String(36)),
    Column("decided_with", String(60)),
    Column("reason", LongText),
    Column("finished_at", Instant),
    # Erased when it has been told, and after a day.
    Column("result", Sealed),
    Column("error", Json),
    Column("collected_at", Instant),
    # The run of an agent that goes on when this has its outcome.
    Column("run_id", String(36)),
    Column("tainted", Boolean),
    Column("agent", String(100)),
    # Whether whoever approved it changed the arguments.
    Column("edited", Boolean),
    # Who may decide (deciders.py), how many of them must agree, who of them has, and who started the run.
    Column("approvers", String(120)),
    Column("persons", Integer),
    Column("agreed", Json),
    Column("starter", String(100)),
    # What whoever approved it put in place of what was asked, without its secrets; kept as long as the row.
    Column("used", Sealed),
    # What the arguments only name, as it was when the call was proposed (Tool.meaning).
    Column("meaning", String(64)),
    # `fields`, as they were asked.
    Column("asked_fields", Sealed),
    Index("ix_approvals_organisation_id_created_at", "organisation_id", "created_at"),
    Index("ix_approvals_run_id", "run_id"),
    Index("ix_approvals_status_expires_at", "status", "expires_at"),
    Index("ix_approvals_proposer_request_id", "proposer", "request_id"),
    # The same call proposed twice at once is one row.
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
    """What only the vault can read, bound to its row and column."""

    vault: Vault

    def seal(self, approval_id: str, column: str, value: str) -> str:
        return self.vault.seal(value.encode(), f"approvals.{column}:{approval_id}")

    def open(self, approval_id: str, column: str, value: str) -> str:
        return self.vault.open(value, f"approvals.{column}:{approval_id}").decode()

    def without_arguments(self, approval_id: str) -> dict[str, str]:
        """What takes the arguments out of a row; the column is never empty, so that every key rotation can read it."""
        return {"arguments": self.seal(approval_id, "arguments", "{}")}
