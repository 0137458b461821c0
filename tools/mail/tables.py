"""The rows of mails, in the database of the app's region."""

from sqlalchemy import Column, Index, Integer, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("mail")

INSTALLATION = "installation"
"""In place of an app's id, for the installation's own mails."""

mails = Table(
    "mails",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("id", String(36), primary_key=True),
    Column("to_address", String(250), nullable=False),
    Column("template", String(60), nullable=False),
    Column("subject", String(300), nullable=False),
    # Mails contain one-time codes, so they are sealed.
    Column("text", Sealed, nullable=False),
    Column("html", Sealed, nullable=False),
    Column("sender_name", String(200), nullable=False),
    Column("status", String(20), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("error", Text),
    Column("created_at", Instant, nullable=False, index=True),
    Column("expires_at", Instant),
    Column("sent_at", Instant),
    Index("ix_mails_app_id_created_at_id", "app_id", "created_at", "id"),
)

mail_settings = Table(
    "mail_settings",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("from_name", String(100)),
    Column("reply_to", String(250)),
    Column("colour", String(7)),
    # Addresses, and domains with an @ before them, that the app may mail beside its users and members.
    Column("recipients", Json),
    # The app's own server; null for the installation's.
    Column("smtp_host", String(253)),
    Column("smtp_port", Integer),
    Column("smtp_tls", String(10)),
    Column("smtp_from", String(250)),
    Column("smtp_username", String(250)),
    Column("smtp_password", Sealed),
    Column("updated_at", Instant, nullable=False),
)

APP_TABLES = (AppTable(mails), AppTable(mail_settings))
