"""The tools that an app gives to its users over MCP, and the tokens that open them."""

from dataclasses import replace

from baobab.tools.core.auth.callers import Caller, EndUser, Limits
from baobab.tools.core.auth.directory import App, Directory
from baobab.tools.core.auth.key_limits import find_exceeded_limit
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import InvalidUserToken, NotFound

SCOPE = "mcp"
"""The scope of tokens of MCP clients; what they open is the app's setting, and no scope."""


class UserToolsClosed(NotFound):
    code = "AUTH_MCP_CLOSED"
    summary = "Users of this app cannot sign in over MCP."
    remediation = "Ask whoever runs the app to name tools with op:config_user_tools."


async def get_open_app(directory: Directory, app_id: object) -> App:
    """Returns an app whose users sign in over MCP. Raises AppNotFound and UserToolsClosed."""
    app = await directory.app(app_id)
    if not app.user_tools:
        raise UserToolsClosed
    return app


def build_resource(base_url: str, app_id: str) -> str:
    """Returns the address of an app's MCP endpoint for its users: what a token of an MCP client is bound to."""
    return f"{base_url}/mcp?app_id={app_id}"


def is_for_users(tool: Tool) -> bool:
    """Returns whether an app may give a tool to its users: it works in an app, and admits users who decide nothing for
    others.

    It is checked for a user with limits, because such a caller never decides about a call that waits for a person.
    """
    user = EndUser("", "", limits=Limits(tools=frozenset({tool.name})))
    works_in_app = tool.mcp and tool.app_parameter == "app_id"
    return works_in_app and tool.access.admits(user) and find_exceeded_limit(user, tool) is None


def is_user(caller: Caller) -> bool:
    """Returns whether a caller is a user of an app in person, and not a key that acts for one."""
    return isinstance(caller, EndUser) and caller.key_id is None


def hold_to_user_tools(user: EndUser, app: App, endpoint_app_id: str | None) -> EndUser:
    """Returns a user of an app as MCP admits them: with the tools that the app gives to its users, and no others.

    endpoint_app_id: the app that the address of the endpoint names, if it names one.
    Raises InvalidUserToken at the endpoint of another app.
    """
    if endpoint_app_id not in (None, app.id):
        raise InvalidUserToken("The token was issued by another app.")
    return replace(user, limits=Limits(tools=app.user_tools))
