"""For whom a function runs: the caller as the function sees them, and the caller that the platform sees behind it."""

from dataclasses import dataclass, field, replace
from typing import Any

from baobab.tools.core import Account, Anonymous, AppKey, Caller, EndUser, Forbidden
from baobab.tools.core.auth.callers import FunctionKey
from baobab.tools.core.auth.directory import App


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls a function.

    kind: `service_key`, `end_user_jwt`, `loopback` (the platform itself, or another function) or `anonymous`.
    acting: with whose right `ctx` reads and writes: the user's, else the app's own.
    authorization: the credential of the call, for requests to the app's own API; never shown to the function.
    """

    kind: str
    acting: Caller
    user_id: str | None = None
    key_id: str | None = None
    scope: str | None = None
    runs_app: bool = False
    """Whether the caller is one of those who run the app, who see more of a failure."""
    authorization: str | None = field(default=None, repr=False)
    as_user: str | None = None

    def describe(self) -> dict[str, Any]:
        """Returns `ctx.caller`."""
        return {"type": self.kind, "keyId": self.key_id, "scope": self.scope, "userId": self.user_id}

    def through_function(self) -> "Identity":
        """Returns the identity of a function that this one calls."""
        return replace(self, kind="loopback")


def act_as_app(app: App, function_id: str) -> AppKey:
    """Returns the caller with the app's own right: no credential came, and the function is named in its stead."""
    return AppKey(app.id, function_id)


def act_as_user(app: App, function_id: str, user_id: str) -> EndUser:
    """Returns the caller that acts as a user of the app because a function says so."""
    return EndUser(app.id, user_id, key_id=function_id)


def identify_platform(app: App, function_id: str) -> Identity:
    """Returns the identity for what the platform itself starts: an hour, an upload, a webhook, a sign-in."""
    return Identity("loopback", act_as_app(app, function_id))


def identify(app: App, function_id: str, caller: Caller, authorization: str | None = None) -> Identity:
    """Returns the identity of a caller. Raises Forbidden for the credential of another app."""
    service = act_as_app(app, function_id)
    match caller:
        case EndUser():
            if caller.app_id != app.id:
                raise Forbidden(f"This credential does not belong to the app {app.id}.")
            kind = "service_key" if caller.key_id else "end_user_jwt"
            as_user = caller.user_id if caller.key_id else None
            return Identity(
                kind, caller, caller.user_id, caller.key_id, "user", authorization=authorization, as_user=as_user
            )
        case AppKey():
            scope = f"app:{app.id}"
            return Identity(
                "service_key", service, None, caller.key_id, scope, runs_app=True, authorization=authorization
            )
        case Account():
            return Identity(
                "service_key", service, None, caller.key_id, "account", runs_app=True, authorization=authorization
            )
        case Anonymous():
            return Identity("anonymous", service, authorization=authorization)
    raise Forbidden("This credential calls no functions.", remediation="Send a key of the app, or a user's token.")


def key_of_functions(app: App) -> FunctionKey:
    """Returns the caller that opens the key-value store for functions."""
    return FunctionKey(app.id)
