"""The errors of API keys."""

from baobab.tools.core import BadRequest, NotFound


class KeyNotFound(NotFound):
    summary = "There is no such key."
    remediation = "op:api_keys_list lists the keys that you may see."


class NeverAsks(BadRequest):
    summary = "A tool that only reads cannot wait for approval."
    remediation = "To keep the key from reading, close the toolset to it (op:api_keys_update)."


class KeyScopesUnclear(BadRequest):
    code = "VALIDATION_INVALID_INPUT"
    summary = "The fields do not describe one key."
    remediation = (
        "Send `key_scope` (`account`, or `app` with `target_app_id`), or `scopes` alone; "
        "a substrate key opens nothing else, so make a second key for everything else."
    )
