"""What a clone of an app has of its mail: how mails look, and neither a server nor an address."""

from collections.abc import Iterable
from typing import Any

from baobab.tools.core.app_clones import Ability, ClonedRows, CloneRule, Cloning, Row, never_clone
from baobab.tools.mail.tables import mail_settings

_COPIED = ("app_id", "from_name", "colour")


def _copy_settings(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    empty = dict.fromkeys(row)
    return {**empty, **{name: row[name] for name in _COPIED}, "updated_at": cloning.started_at}


def _list_abilities(row: Row) -> Iterable[Ability]:
    if row["smtp_host"] is not None:
        yield Ability("mail_server", "mail", "It sends mail through a server of its own.", tool="mail_settings_update")


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        mail_settings,
        "replaying_config",
        "the sender's name and the colour of mails",
        _copy_settings,
        list_abilities=_list_abilities,
    ),
    *never_clone("history", "mails"),
)
