"""The errors of OAuth for accounts; those that every authorization server has are in runtime/oauth/errors.py."""

from baobab.runtime.oauth.errors import OAuthError
from baobab.tools.core import NotFound


class InvalidScope(OAuthError):
    code = "OAUTH_INVALID_SCOPE"
    summary = "There is no such scope."
    remediation = "Ask for `mcp`, `ai:gateway`, or both."
    oauth = "invalid_scope"


class ProgramNotFound(NotFound):
    code = "OAUTH_PROGRAM_NOT_FOUND"
    summary = "No program with this id has access to your account."
    remediation = "op:oauth_programs_list lists those that have it."
