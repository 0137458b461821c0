"""Tenancy: for whom the current task works. Shared resources are divided fairly between tenants."""

from contextvars import ContextVar

STRANGER = "stranger"
PLATFORM = "platform"

_tenant: ContextVar[str] = ContextVar("tenant", default=PLATFORM)


def current_tenant() -> str:
    """Returns an organisation's id; `stranger:` and an address for callers without a credential; else `platform`."""
    return _tenant.get()


def set_tenant(tenant: str) -> None:
    """Sets the tenant of this task and of all tasks that it starts."""
    _tenant.set(tenant)
