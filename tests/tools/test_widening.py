"""Arguments that give somebody more are declared as such, whichever tool takes them."""

import re

from baobab import tools
from baobab.tools.core.registry import Registry

SUSPECTS = re.compile(
    r"visib|public|published|cors|origin|rules?$|approver|scope|acl|accept|access|taint|safety|listed|share|expose|grant|permission"
    r"|role|members?$|allow|admin",
    re.IGNORECASE,
)
HARMLESS = {
    "api_keys_create.key_scope": "a key gets the limits of the key that makes it",
    "api_keys_create.scope": "a key gets the limits of the key that makes it",
    "api_keys_create.scopes": "a key gets the limits of the key that makes it",
    "api_keys_create.additional_scopes": "a key gets the limits of the key that makes it",
    "ai_config_update.allowedModels": "what models cost is bounded by budgets; a key that must ask asks",
    **{
        f"data_{tool}.as_role": "it shows those who run the app less than they may see"
        for tool in ("insert", "batch", "sql", "import", "update", "update_many", "delete", "delete_many")
    },
    "people_search_person.currentRoleTitle": "the role of somebody who is searched for",
    "people_search_person.pastRoleTitle": "the role of somebody who is searched for",
    "config_jwt.accessTokenTtl": "how long a token lives is no right of its own",
}


def test_whatever_is_called_like_a_right_is_declared_to_widen() -> None:
    registry = Registry(tools.toolsets())
    suspects = {
        f"{tool.name}.{name}"
        for tool in registry.tools.values()
        if tool.effect != "read" and tool.access.credential and not tool.grants
        for name in tool.arguments.model_fields
        if SUSPECTS.search(name)
    }
    widening_fields = {f"{tool.name}.{name}" for tool in registry.tools.values() for name in tool.widens}
    assert {
        "agents_create.approvers",
        "agents_update.approvers",
        "config_cors.allowed_origins",
    } <= suspects & widening_fields
    assert suspects - widening_fields == HARMLESS.keys() & suspects
    assert HARMLESS.keys() <= suspects, "what is said to be harmless is there"
