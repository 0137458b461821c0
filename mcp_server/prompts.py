"""Prompts: `quickstart` tells a model how to start with the tools of its connection."""

from collections.abc import Iterator, Sequence
from typing import Any

import mcp_types as types
from pydantic_core import to_json

from baobab.mcp_server.apps import get_own_app
from baobab.mcp_server.catalogue import Catalogue, Offer
from baobab.mcp_server.extension import Context, Extension
from baobab.mcp_server.mcp_client import McpClient, get_client
from baobab.tools.core.auth.callers import AppKey, EndUser, FunctionKey
from baobab.tools.core.auth.user_tools import is_user
from baobab.tools.core.errors import AppNotFound, KeyLimited, UnknownField
from baobab.tools.core.registry import Registry

QUICKSTART = "quickstart"

_SUMMARY = "How to begin with Baobab: first calls, more tools, errors, approvals."
_TEXT = """\
You have Baobab, a backend for AI agents and the apps around them. Every capability is one tool; this connection \
offers {count} in these toolsets: {families}.

{app}

Begin with these calls:
{steps}
{more}
When a call is refused, nothing has changed, and the result has a code, a message and a remediation. Do what the \
remediation says before you try again, but ask your person before you delete anything that it names.
An argument that a tool does not have is an error. A column that a table does not have is left out of a row, and the \
answer says so in `warnings`.
APPROVAL_REQUIRED means that nothing has been done yet: show your person details.decide_at, and after they have \
decided repeat exactly the same call.
data_undo brings back rows, and tables and columns that schema_apply dropped, within {days} days. Deleted keys, files, \
users and apps are gone: ask your person before you delete or flush them."""
_MORE = """\

Your list shows the most used tools. Find others with search_tools {"query": "what you want to do"}, then use them \
with call_tool {"name": "...", "arguments": {...}}.
"""
_ANY_APP = "Tables, keys, files and settings belong to an app; most tools take its app_id."

_Step = tuple[str, dict[str, Any], str]
"""A tool, arguments for a first call, and what it does."""
_BEFORE_APP: tuple[_Step, ...] = (
    ("apps_list", {}, "your apps"),
    ("apps_init", {"name": "todo"}, "creates an app, or returns the one of that name"),
)
_WITHIN_APP: tuple[_Step, ...] = (
    ("kv_put", {"key": "greeting", "value": "hello"}, "stores a value, any JSON"),
    ("kv_get", {"key": "greeting"}, "reads it"),
    ("kv_incr", {"key": "visits"}, "increments a counter; safe with many callers"),
    ("schema_get", {}, "the app's tables; schema_apply makes them, data_insert and data_list write and read rows"),
    ("config_get", {}, "every setting of the app"),
)
_AT_LAST: tuple[_Step, ...] = (("system_llms_txt", {}, "the guide: patterns, rights, limits, errors"),)


class Prompts(Extension):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._catalogue = Catalogue(registry)

    async def prompts(self, ctx: Context) -> Sequence[types.Prompt]:
        if is_user(get_client(ctx).caller):
            # It tells how to build with Baobab, which is no concern of an app's users.
            return []
        app_id = types.PromptArgument(name="app_id", title="App", description="Id of the app to work in.")
        return [types.Prompt(name=QUICKSTART, title="Begin with Baobab", description=_SUMMARY, arguments=[app_id])]

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult | None:
        if params.name != QUICKSTART or is_user(get_client(ctx).caller):
            return None
        arguments = params.arguments or {}
        unknown = [name for name in arguments if name != "app_id"]
        if unknown:
            raise UnknownField(f"`{unknown[0][:60]}` is not an argument; the argument of {QUICKSTART} is `app_id`.")
        client = get_client(ctx)
        # Clients send an empty string for an argument that was left out.
        text = await self._render_quickstart(client, arguments.get("app_id") or client.app_id)
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=_SUMMARY, messages=[message])

    async def _render_quickstart(self, client: McpClient, app_id: str | None) -> str:
        offer = self._catalogue.get_offer(client)
        return _TEXT.format(
            count=f"{len(offer.tools)} tools",
            families=", ".join(dict.fromkeys(tool.toolset.name for tool in offer.tools.values())),
            app=_ANY_APP if app_id is None else await self._describe_app(client, app_id),
            steps="\n".join(_render_steps(offer, client, app_id)),
            days=self._registry.services.options.undo_days,
            more=_MORE if offer.has_search else "",
        )

    async def _describe_app(self, client: McpClient, app_id: str) -> str:
        name = await self._get_app_name(client, app_id)
        app_text = f"the app {name} ({app_id})" if name else f"the app {app_id}"
        if client.app_id is not None:
            return f"Every call of this connection is made in {app_text}; no tool asks for an app_id."
        return f'Work in {app_text}: give app_id "{app_id}" to the tools that ask for it.'

    async def _get_app_name(self, client: McpClient, app_id: str) -> str | None:
        """Returns the app's name; None if the client belongs to the app but may not read it. Otherwise raises
        AppNotFound.
        """
        try:
            app = await get_own_app(self._registry, client, app_id)
        except KeyLimited:
            return None
        if app is not None:
            return str(app["name"])
        if (
            isinstance(client.caller, (AppKey, EndUser, FunctionKey))
            and app_id == client.caller.app_id == client.app_id
        ):
            return None
        raise AppNotFound(details={"app_id": app_id[:100]})


def _render_steps(offer: Offer, client: McpClient, app_id: str | None) -> Iterator[str]:
    """Yields the first calls, with arguments, for the tools that this connection has."""
    app_argument = {} if client.app_id is not None else {"app_id": app_id or "APP_ID"}
    steps = [] if app_id is not None else [*_BEFORE_APP]
    steps += [(name, {**app_argument, **arguments}, purpose) for name, arguments, purpose in _WITHIN_APP]
    for name, arguments, purpose in (*steps, *_AT_LAST):
        if name in offer.tools:
            yield f"- {name} {to_json(arguments).decode()}: {purpose}"
