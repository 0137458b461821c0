"""Subdomains: where an app is reached by the Host header."""

from collections.abc import Awaitable, Callable

from baobab.storage.clock import Ids

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
    """A subdomain near the name: itself, with a word behind it, or with random letters."""
    plain = derive_subdomain(name)
    short = plain[:50].rstrip("-")
    for candidate in (plain, *(f"{short}-{word}" for word in _WORDS)):
        if candidate not in RESERVED and not await is_taken(candidate):
            return candidate
    return f"{short}-{ids.base36(8)}"
