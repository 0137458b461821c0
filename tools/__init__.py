"""The tools: `core` is the framework, and each other folder is a domain, named in a line here."""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # With it comes all of the framework, which a command such as `baobab --help` does not need.
    from baobab.tools.core import Toolset

DOMAINS = (
    "system",
    "accounts",
    "organisations",
    "api_keys",
    "oauth",
    "approvals",
    "console",
    "billing",
    "apps",
    "moves",
    "kv",
    "data",
    "ai",
    "agents",
    "audit_logs",
    "jobs",
    "suggestions",
    "mail",
    "substrate",
    "files",
    "rag",
    "repo",
    "people",
    "integrations",
    "triggers",
    "functions",
    "sites",
    "domains",
    "users",
    "templates",
)
"""In the order in which catalogues show them."""


def toolsets() -> Iterator["Toolset"]:
    """Returns the toolsets of every domain; importing a domain registers its tools."""
    for domain in DOMAINS:
        yield from import_module(f"baobab.tools.{domain}").TOOLSETS
