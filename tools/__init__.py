"""The tools: `core` is the framework, and each other folder is a domain, named in a line here."""

from collections.abc import Iterator

from baobab.tools.core.toolset import Toolset


def toolsets() -> Iterator[Toolset]:
    """Every domain, in the order in which catalogues show them."""
    from baobab.tools.accounts.tools import accounts
    from baobab.tools.agents.tools import agents
    from baobab.tools.ai.media.tools import media
    from baobab.tools.ai.tools import ai, app_messages, gateway, messages, model_servers
    from baobab.tools.api_keys.tools import api_keys
    from baobab.tools.approvals.tools import approvals
    from baobab.tools.apps.config import config
    from baobab.tools.apps.tools import apps
    from baobab.tools.audit_logs.tools import audit_logs
    from baobab.tools.billing.tools import billing
    from baobab.tools.kv.tools import kv
    from baobab.tools.moves.tools import moves
    from baobab.tools.oauth.tools import oauth
    from baobab.tools.organisations.tools import organisations
    from baobab.tools.suggestions.tools import suggestions
    from baobab.tools.system.tools import system

    yield from (system, accounts, organisations, api_keys, oauth, approvals, billing)
    yield from (apps, moves, config, kv, gateway, messages, ai, app_messages, media, model_servers, agents)
    yield from (audit_logs, suggestions)
