"""The errors of API keys."""

from baobab.tools.core.errors import BadRequest, NotFound


class KeyNotFound(NotFound):
    summary = "There is no such key."
    remediation = "op:api_keys_list lists the keys that you may see."


class NeverAsks(BadRequest):
    summary = "A tool that only reads never asks."
    remediation = "Close its toolset to the key, if the key is not to read it (op:api_keys_update)."


class KeyScopesUnclear(BadRequest):
    code = "VALIDATION_INVALID_INPUT"
    summary = "These fields do not say which key is wanted."
    remediation = (
        "Send `key_scope` (`account`, or `app` with `target_app_id`), or `scopes` alone; "
        "a substrate key opens nothing else, so make a second key for everything else."
    )
