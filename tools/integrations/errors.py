"""The errors of integrations, with the codes of the contract. Those that a connection mends say where to connect."""

from baobab.tools.core import BadRequest, BaobabError, Conflict, NotFound


class NotConfigured(BadRequest):
    code = "INTEGRATIONS_NOT_CONFIGURED"
    summary = "This server has no provider of integrations."
    remediation = (
        "Ask the operator to set BAOBAB_INTEGRATIONS, or BAOBAB_SIMULATORS=on to try it without one. Or register a"
        " tool server that speaks to the service (op:mcp_servers_create)."
    )


class ToolkitNotEnabled(BadRequest):
    code = "INTEGRATIONS_TOOLKIT_NOT_ENABLED"
    summary = "This toolkit is not enabled for the app."
    remediation = "Whoever runs the app enables it with op:integrations_configure; op:integrations_available lists all."


class ToolkitUnknown(NotFound):
    summary = "No provider of this server has this toolkit."
    remediation = "op:integrations_available lists toolkits by their slugs, and searches further ones."


class CredentialsRequired(BadRequest):
    code = "INTEGRATIONS_BYO_CREDENTIALS_REQUIRED"
    summary = "This toolkit needs an OAuth client of the app's own."
    remediation = (
        "Register a client at the service, and send its id and secret as `oauth_credentials` with"
        " op:integrations_configure."
    )


class ProviderUnknown(BadRequest):
    summary = "This server has no such provider of integrations."
    remediation = "Leave `provider` out, or name one that details.providers lists."


class RedirectUrlRefused(BadRequest):
    summary = "The browser may not be sent to `redirectUrl`."
    remediation = "Send an address whose origin is among the app's allowed origins; op:config_cors adds one."


class UserRequired(BadRequest):
    code = "VALIDATION_MISSING_FIELD"
    summary = "Say for which user of the app: `userId`."
    remediation = "Send the user's id as `userId`, or the user's own token."


class LinkRefused(BadRequest):
    summary = "This link is not good any more, or was opened before in another browser."
    remediation = "Go back to the app and begin again."


class NotConnected(BadRequest):
    code = "INTEGRATIONS_NOT_CONNECTED"
    summary = "The user has no connected account of this toolkit."
    remediation = "Send the user's browser to details.connect_url, and make the call again once it is connected."


class AccountAmbiguous(BadRequest):
    summary = "The user has several accounts of this toolkit."
    remediation = "Name one as `account`: its alias, its name or its id, as details.accounts lists them."


class ConnectionExpired(BaobabError):
    code = "INTEGRATIONS_CONNECTION_EXPIRED"
    status = 401
    summary = "The service does not accept the user's connection any more."
    remediation = "Send the user's browser to details.connect_url to connect again, then make the call again."


class ExecutionFailed(BaobabError):
    code = "INTEGRATIONS_EXECUTION_FAILED"
    status = 422
    summary = "The tool failed."
    remediation = "Check the tool's name, its parameters (op:integrations_tools) and the user's connected account."


class ServiceUnreachable(BaobabError):
    code = "INTEGRATIONS_EXECUTION_FAILED"
    status = 502
    summary = "The service could not be reached, or did not answer in time."
    remediation = (
        "Check the tool's name, its parameters and the user's connected account, and try again later. With an"
        " `idempotencyKey`, a repeated call is done once."
    )


class OutcomeUnknown(BaobabError):
    code = "INTEGRATIONS_EXECUTION_FAILED"
    status = 502
    summary = "The call was sent, and nobody can say whether the service has done it: no answer was recorded."
    remediation = (
        "Look at the service whether it was done. If it was not, make the call again with another `idempotencyKey`."
    )


class UpstreamFailed(BaobabError):
    code = "INTEGRATIONS_UPSTREAM_ERROR"
    status = 502
    summary = "The provider of integrations did not do it."
    remediation = "Try again later; if it stays so, tell whoever runs this server."


class QuotaExceeded(BaobabError):
    code = "INTEGRATIONS_QUOTA_EXCEEDED"
    status = 429
    summary = "Too many calls: the service, or this server's limit for one user, takes no more now."
    remediation = "Wait as long as Retry-After says."


class StillRunning(Conflict):
    summary = "The call with this `idempotencyKey` is still under way."
    remediation = "Make the same call again in a moment: it answers the result."


class KeyUsed(Conflict):
    summary = "This `idempotencyKey` was used for another call."
    remediation = "Use a key of its own for each call that you mean to make."


class ConnectionNotFound(NotFound):
    summary = "There is no such connection here."
    remediation = "op:integrations_connections lists them."


class HookUnsigned(BaobabError):
    code = "INTEGRATIONS_HOOK_UNSIGNED"
    status = 401
    summary = "The provider has not signed this webhook, or not with the secret that this server has, or too long ago."
    remediation = "Set BAOBAB_INTEGRATIONS_WEBHOOK_SECRET to the signing secret that the provider shows."


CONNECTING = (ToolkitNotEnabled, NotConfigured, UserRequired, RedirectUrlRefused, UpstreamFailed)
EXECUTING = (
    ToolkitNotEnabled,
    NotConfigured,
    UserRequired,
    NotConnected,
    AccountAmbiguous,
    ConnectionExpired,
    ExecutionFailed,
    ServiceUnreachable,
    OutcomeUnknown,
    UpstreamFailed,
    QuotaExceeded,
    StillRunning,
    KeyUsed,
)
