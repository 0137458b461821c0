"""New apps: their rows, with a subdomain of their own, and the keys that each is born with."""

from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import select

from baobab.storage.clock import Ids
from baobab.storage.sql.database import Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core.auth.credentials import ANON_KEY
from baobab.tools.core.auth.function_keys import make_function_key
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.services import Services

_INSERT = {
    dialect: build_upsert(dialect, apps).on_conflict_do_nothing(index_elements=["subdomain"])
    for dialect in ("sqlite", "postgresql")
}
_DEFAULT_STORAGE = {"maxFileSizeMb": 10, "allowedContentTypes": [], "publicReadEnabled": False}
_DEFAULT_JWT = {"accessTokenTtl": "1h", "refreshTokenTtlDays": 7}


RESERVED = frozenset((
    "admin", "api", "app", "apps", "assets", "auth", "billing", "blog", "cdn", "console", "dashboard", "data", "docs",
    "fn", "ftp", "health", "help", "imap", "init", "kv", "localhost", "login", "mail", "mcp", "metrics", "ns1", "ns2",
    "oauth", "platform", "pop", "public", "root", "smtp", "status", "storage", "support", "www",
))  # fmt: skip


_WORDS = (
    "acacia", "alder", "ash", "aspen", "beech", "birch", "cedar", "cypress", "elm", "fig", "fir", "hazel", "juniper",
    "larch", "linden", "maple", "oak", "palm",
)  # fmt: skip


def derive_subdomain(name: str) -> str:
    return name.replace("_", "-").strip("-") or "app"


async def pick_subdomain(name: str, is_taken: Callable[[str], Awaitable[bool]], ids: Ids) -> str:
    """Derives a subdomain from a name: the name itself, the name and a word, or the name and random letters."""
    plain = derive_subdomain(name)
    short = plain[:50].rstrip("-")
    for candidate in (plain, *(f"{short}-{word}" for word in _WORDS)):
        if candidate not in RESERVED and not await is_taken(candidate):
            return candidate
    return f"{short}-{ids.base36(8)}"


async def is_subdomain_taken(unit: Unit, subdomain: str) -> bool:
    return (await unit.execute(select(apps.c.id).where(apps.c.subdomain == subdomain))).first() is not None


async def find_free_subdomain(unit: Unit, services: Services, name: str) -> str:
    """Derives a subdomain from a name that no app has."""

    async def is_taken(subdomain: str) -> bool:
        return await is_subdomain_taken(unit, subdomain)

    return await pick_subdomain(name, is_taken, services.ids)


def build_app_row(
    services: Services, app_id: str, organisation_id: str, name: str, *, subdomain: str, region: str, **settings: Any
) -> dict[str, Any]:
    """Builds the row of a new app. settings: further columns, in place of the defaults."""
    ids, now = services.ids, services.clock.now()
    _, function_key = make_function_key(ids, services.vault, app_id)
    return {
        "id": app_id,
        "organisation_id": organisation_id,
        "name": name,
        "subdomain": subdomain,
        "region": region,
        "allowed_origins": [],
        "storage_config": _DEFAULT_STORAGE,
        "jwt_config": _DEFAULT_JWT,
        "anon_key": ANON_KEY + ids.secret(32),
        **function_key,
        "provisioning_status": "ready",
        "created_at": now,
        "updated_at": now,
        **settings,
    }


async def insert_app_row(unit: Unit, row: dict[str, Any]) -> bool:
    """Inserts an app. Returns False, and inserts nothing, if the subdomain is taken."""
    return bool((await unit.execute(_INSERT[unit.database.dialect], row)).rowcount)
