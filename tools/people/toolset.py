"""The toolset of people."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_clones import never_clone
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.people.errors import (
    ENVELOPE,
    PROVIDER_ERRORS,
    ActionUnsupported,
    PeopleDisabled,
    PeopleUnavailable,
    ProviderNotRegistered,
)
from baobab.tools.people.slots import list_refusal_headers
from baobab.tools.people.tables import APP_TABLES

people = Toolset(
    "people",
    "People and companies: search them, read profiles, and look up e-mail addresses.",
    base="/v1/{app_id}/people",
    envelope=ENVELOPE,
    raises=(RateLimited, Unavailable),
    app_tables=APP_TABLES,
    clones=never_clone("persons, and history", "people_profiles", "people_lookups", "people_usage"),
    refusal_headers=list_refusal_headers,
)
ASKING = (
    PeopleDisabled,
    PeopleUnavailable,
    ProviderNotRegistered,
    ActionUnsupported,
    CreditsExhausted,
    BudgetExhausted,
    AppMigrating,
    *PROVIDER_ERRORS,
)
"""The errors of tools that ask a provider."""
