"""The framework of tools: it knows no domain.

Domains import from here what most of them use, as in `from baobab.tools.core import AppId, Call, Toolset`, and
everything else from its module. The modules of the framework import from each other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baobab.tools.core.app_data import AppTable
    from baobab.tools.core.app_freezes import Freezes
    from baobab.tools.core.auth.access import EVERYBODY, AnyAccount, AppOwner
    from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser
    from baobab.tools.core.auth.roles import Role, require_role
    from baobab.tools.core.binding import Audit
    from baobab.tools.core.call import Call
    from baobab.tools.core.errors import (
        AppMigrating,
        AppNotFound,
        BadRequest,
        BaobabError,
        Conflict,
        Forbidden,
        NotFound,
        RateLimited,
        Unauthenticated,
        Unavailable,
    )
    from baobab.tools.core.guard.widening import one_of
    from baobab.tools.core.job import Job
    from baobab.tools.core.jobs import RetryLater
    from baobab.tools.core.limits.limits import PerAddress
    from baobab.tools.core.pagination import Cursor, PageSize, decode_cursor, encode_cursor
    from baobab.tools.core.secret import NotSecret, Secret
    from baobab.tools.core.services import Services
    from baobab.tools.core.toolset import Guard, Mcp, Rest, Toolset
    from baobab.tools.core.types import OMITTED, AppId, Email, JsonObject, NameText, Text, Uuid

_NAMES = {
    "app_data": ("AppTable",),
    "app_freezes": ("Freezes",),
    "auth.access": (
        "EVERYBODY",
        "AnyAccount",
        "AppOwner",
    ),
    "auth.callers": (
        "Account",
        "Anonymous",
        "AppKey",
        "Caller",
        "EndUser",
    ),
    "auth.roles": (
        "Role",
        "require_role",
    ),
    "binding": ("Audit",),
    "call": ("Call",),
    "errors": (
        "AppMigrating",
        "AppNotFound",
        "BadRequest",
        "BaobabError",
        "Conflict",
        "Forbidden",
        "NotFound",
        "RateLimited",
        "Unauthenticated",
        "Unavailable",
    ),
    "job": ("Job",),
    "jobs": ("RetryLater",),
    "limits.limits": ("PerAddress",),
    "pagination": (
        "Cursor",
        "PageSize",
        "decode_cursor",
        "encode_cursor",
    ),
    "secret": (
        "NotSecret",
        "Secret",
    ),
    "services": ("Services",),
    "toolset": (
        "Guard",
        "Mcp",
        "Rest",
        "Toolset",
    ),
    "types": (
        "OMITTED",
        "AppId",
        "Email",
        "JsonObject",
        "NameText",
        "Text",
        "Uuid",
    ),
    "guard.widening": ("one_of",),
}
"""The same by module. A module is imported when one of its names is first asked for: importing all of them takes longer
than everything that `baobab --help` does.
"""
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
