"""The errors of the key-value store, and the envelope of its toolset."""

from typing import Any

from baobab.tools.core import (
    AppMigrating,
    AppNotFound,
    BadRequest,
    BaobabError,
    Conflict,
    Forbidden,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import (
    BodyTooLarge,
    Damaged,
    ImpersonationForbidden,
    Internal,
    InvalidApiKey,
    InvalidToken,
    InvalidUserToken,
    MethodNotAllowed,
)

MAX_VALUE_BYTES = 256 * 1024


class KeyNotFound(NotFound):
    code = "not_found"
    summary = "There is no such key."
    remediation = "Put a value first, or list the keys with op:kv_scan."


class KeyInvalid(BadRequest):
    code = "key_invalid"
    summary = "The key is not valid."
    remediation = "Use 1 to 512 printable ASCII characters, not starting with `_`, without `.` or `..` as a segment."


class KeySegmentEmpty(KeyInvalid):
    code = "invalid_key"
    summary = "The key is empty or has an empty segment."
    remediation = "Send a key with text on both sides of every `/`."


class OpenToUsers(Conflict):
    summary = "A rule lets users or visitors write some of these keys, so their values are not the app's own."
    remediation = "Mark keys that only you write, or close these first: op:kv_expose_list shows the rules."


class ConfirmRequired(BadRequest):
    code = "confirm_required"
    summary = "Flushing deletes every key and cannot be undone."
    remediation = (
        'Ask the person whose keys they are. {"confirm": true} then deletes every key of the app, and nothing brings '
        "one back."
    )


class NotAnInteger(BadRequest):
    summary = "The stored value is not an integer."
    remediation = "Use another key for the counter, or put an integer first."


class CounterOverflow(BadRequest):
    summary = "The result does not fit a signed 64-bit integer."
    remediation = "Use a smaller step, or store a new start value."


class ValueTooLarge(BodyTooLarge):
    code = "KV_VALUE_TOO_LARGE"
    summary = "The value is larger than 256 KB."
    remediation = "Store less under one key: split the value, or keep it as a file."

    def __init__(self, size: int) -> None:
        super().__init__(details={"size": size, "max": MAX_VALUE_BYTES})


class ExposeConflict(Conflict):
    code = "KV_EXPOSE_CONFLICT"
    summary = "There is a rule for this pattern with other levels."
    remediation = (
        "Read both: details.existing is the rule that holds. If yours is meant to take its place, ask whoever runs the"
        " app before you remove that one with op:kv_unexpose."
    )


class StorageFull(BaobabError):
    code = "kv_storage_full"
    status = 507
    summary = "The app's key-value storage is full."
    remediation = (
        "Give new keys a shorter `ttl`, or ask the operator for a plan with more storage. Delete keys only if whoever "
        "runs the app says which."
    )


class KeysExhausted(StorageFull):
    code = "kv_keys_exhausted"
    summary = "The app has as many keys as its plan allows."
    remediation = (
        "Give new keys a shorter `ttl`, or ask the operator for a plan with more keys. Delete keys only if whoever "
        "runs the app says which."
    )


class ForeignCredential(Forbidden):
    """A credential of somebody who does not run this app."""

    code = "AUTH_INSUFFICIENT_PERMISSIONS"
    summary = "This credential does not belong to the app."
    remediation = "Use a key of this app, or of an account in its organisation."


# Errors of credentials without a code of their own in this toolset: `auth_failed`, with the platform's code inside.
_WRAPPED = (InvalidApiKey, ForeignCredential, ImpersonationForbidden)


class KvEnvelope(Envelope):
    """`{error: <code>, message, remediation, ...details}`; refused credentials carry the platform's code as `code`."""

    name = "KvError"

    def __init__(self) -> None:
        super().__init__(
            {
                AppMigrating: "kv_migrating",
                AppNotFound: "no_kv_credential",
                BadRequest: "bad_request",
                BodyTooLarge: "KV_VALUE_TOO_LARGE",
                Damaged: "store_damaged",
                Forbidden: "forbidden",
                Internal: "internal_error",
                InvalidToken: "invalid_jwt",
                InvalidUserToken: "invalid_jwt",
                MethodNotAllowed: "method_not_allowed",
                NotFound: "not_found",
                RateLimited: "kv_rate_limited",
                Unauthenticated: "unauthorized",
                Unavailable: "store_error",
            }
        )

    def code(self, kind: type[BaobabError]) -> str:
        if issubclass(kind, _WRAPPED):
            return "auth_failed"
        if kind.__module__ == __name__ and "code" in kind.__dict__:
            return kind.code
        for ancestor in kind.__mro__:
            if ancestor in self._codes:
                return self._codes[ancestor]
        return kind.code

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        remedy = self.place_details(error.remedy)
        body = {"error": self.code(type(error)), "message": error.message, "remediation": remedy}
        if error.status in (401, 403, 404) and error.code != body["error"]:
            body["code"] = error.code
        return {**error.details, **body}

    def schema(self) -> Schema:
        text = {"type": "string"}
        return {
            "type": "object",
            "properties": {"error": text, "message": text, "remediation": text, "code": text},
            "required": ["error", "message", "remediation"],
        }
