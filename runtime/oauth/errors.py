"""Errors of authorization servers. `oauth` is the error's code in the OAuth protocol."""

from typing import ClassVar

from baobab.tools.core.errors import BadRequest


class OAuthError(BadRequest):
    code = "OAUTH_INVALID_REQUEST"
    summary = "The authorization request is not valid."
    remediation = "Correct the parameter that the message names."
    oauth: ClassVar[str] = "invalid_request"


class RedirectRefused(OAuthError):
    code = "OAUTH_REDIRECT_REFUSED"
    summary = "A client cannot be sent back to this address."
    remediation = "Use an https address, http on localhost, or the private scheme of an editor or app."
    oauth = "invalid_redirect_uri"


class InvalidTarget(OAuthError):
    code = "OAUTH_INVALID_TARGET"
    summary = "This server gives no access to that resource."
    remediation = "Leave `resource` out, or name the MCP endpoint that this authorization server is for."
    oauth = "invalid_target"


class UnknownClient(OAuthError):
    code = "OAUTH_UNKNOWN_CLIENT"
    summary = "There is no client with this id."
    remediation = "Register the client again at the `registration_endpoint` of this authorization server."
    oauth = "invalid_client"


class DocumentRefused(UnknownClient):
    code = "OAUTH_CLIENT_DOCUMENT_REFUSED"
    summary = "The document at the client's id does not describe a client."
    remediation = "Publish a client-id metadata document there: JSON, its own address as client_id, no secret."


class RequestGone(OAuthError):
    code = "OAUTH_REQUEST_GONE"
    summary = "The authorization request is damaged, or more than ten minutes old."
    remediation = "Start again in the client."


class InvalidGrant(OAuthError):
    code = "OAUTH_INVALID_GRANT"
    summary = "The authorization code is unknown, used or expired."
    remediation = "Start again in the client."
    oauth = "invalid_grant"
