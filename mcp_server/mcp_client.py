"""The client of an MCP request: its caller, view and context. The endpoint puts it into the request's scope."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from baobab.mcp_server.view import View
from baobab.tools.core.auth.callers import AppKey, Caller, EndUser, FunctionKey
from baobab.tools.core.auth.roles import Role
from baobab.tools.core.context import RequestContext

_SCOPE_KEY = "baobab.mcp_client"


@dataclass(frozen=True, slots=True)
class McpClient:
    caller: Caller
    view: View
    context: RequestContext
    read_header: Callable[[bytes], bytes | None]
    """Returns a header of its request, by the name in lower case; None if it was not sent."""
    role: Role | None = None
    """The role of the account behind the caller, in the organisation of the app that the address names, else in its
    own; None for a caller without an account."""
    session: str | None = None
    """The id of its session, if its protocol has sessions."""

    @property
    def app_id(self) -> str | None:
        """The app of every call: the one that the address names, or the one that the credential belongs to."""
        if self.view.app_id is not None:
            return self.view.app_id
        if isinstance(self.caller, (AppKey, EndUser, FunctionKey)):
            return self.caller.app_id
        return None if self.caller.limits is None else self.caller.limits.app_id

    def attach_to(self, scope: MutableMapping[str, Any]) -> None:
        scope[_SCOPE_KEY] = self


def get_client(ctx: Any) -> McpClient:
    """Returns the client of a handler's context."""
    client: McpClient = ctx.request.scope[_SCOPE_KEY]
    return client
