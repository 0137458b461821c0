"""Errors for callers when a store of this installation does not answer.

The registry translates the outages during a call. The interfaces use the same function for outages of their own work
before a call, such as identifying the caller.
"""

import logging

from baobab.storage.kv.errors import SpaceFrozen, StoreDamaged, StoreUnavailable
from baobab.storage.objects.errors import StoreUnavailable as ObjectsUnavailable
from baobab.storage.sql.database import DatabaseDamaged, DatabaseUnavailable, PrivilegeRefused, StatementRefused
from baobab.tools.core.errors import AppMigrating, BaobabError, Damaged, Internal, PrivilegeMissing, Unavailable

_log = logging.getLogger(__name__)

STORE_OUTAGES = (DatabaseUnavailable, StoreUnavailable, SpaceFrozen, ObjectsUnavailable)
"""The errors that stores raise when they do not answer. All but damage end by themselves."""

Outage = DatabaseUnavailable | StoreUnavailable | SpaceFrozen | ObjectsUnavailable


def translate_outage(  # noqa: PLR0911 - one for each kind of outage
    outage: Outage, request_id: str, tool: str | None = None
) -> BaobabError:
    """Logs why a store did not answer, for operators, and returns the error for the caller, which does not say it.

    Returns Damaged (500), PrivilegeMissing (500), Internal (500) for a statement with a mistake of ours, AppMigrating
    (503) or Unavailable (503).
    """
    if isinstance(outage, SpaceFrozen):
        return AppMigrating()
    fields = {"request_id": request_id, "tool": tool, "reason": outage.reason}
    if isinstance(outage, (DatabaseDamaged, StoreDamaged)):
        _log.error("a store is damaged: restore it from a backup", extra=fields)
        return Damaged()
    if isinstance(outage, PrivilegeRefused):
        _log.error("the database refuses a privilege: grant it to the user of BAOBAB_DATABASE_URL", extra=fields)
        return PrivilegeMissing()
    if isinstance(outage, StatementRefused):
        _log.error("a store refuses a statement", extra=fields)
        return Internal()
    _log.warning("a store does not answer", extra=fields)
    if isinstance(outage, DatabaseUnavailable):
        return Unavailable("The database does not answer.")
    if isinstance(outage, StoreUnavailable):
        return Unavailable("The key-value store does not answer.")
    return Unavailable("The object store does not answer.")
