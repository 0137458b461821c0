"""What a clone of an app has of its mail: how mails look, and neither a server nor an address."""

from typing import Any

from baobab.tools.core.app_clones import ClonedRows, CloneRule, Cloning, never_clone
from baobab.tools.mail.tables import mail_settings

_COPIED = ("app_id", "from_name", "colour")


def _copy_settings(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    if row["smtp_host"] is not None:
        cloning.warn("The template sends mail through a server of its own, which is not copied.")
    empty = dict.fromkeys(row)
    return {**empty, **{name: row[name] for name in _COPIED}, "updated_at": cloning.started_at}


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        mail_settings,
        "replaying_config",
        "the sender's name and the colour of mails",
        _copy_settings,
    ),
    *never_clone("history", "mails"),
)
