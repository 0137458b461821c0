"""On whose behalf the work of the moment is done: what is shared is shared fairly between these."""

from contextvars import ContextVar

STRANGER = "stranger"
PLATFORM = "platform"

_tenant: ContextVar[str] = ContextVar("tenant", default=PLATFORM)


def current_tenant() -> str:
    """An organisation's id; `stranger:` and an address for callers without a credential; `platform` for upkeep."""
    return _tenant.get()


def set_tenant(tenant: str) -> None:
    """Name who the work of this task, and of all that it starts, is for."""
    _tenant.set(tenant)
