"""Completion: suggests the ids of the client's apps for arguments of prompts and resource templates."""

import mcp_types as types
from mcp.shared.exceptions import MCPError

from baobab.mcp_server.apps import MOST, list_own_apps
from baobab.mcp_server.extension import Context, Extension
from baobab.mcp_server.mcp_client import get_client
from baobab.mcp_server.prompts import QUICKSTART
from baobab.mcp_server.resources import APP, SCHEMA
from baobab.mcp_server.results import render_error_data
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.registry import Registry

_MOST_VALUES = 100
"""The most values that the protocol allows in one answer."""


class Completion(Extension):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult | None:
        if not _is_app_argument(params):
            return None
        prefix = params.argument.value.casefold()
        try:
            apps = await list_own_apps(self._registry, get_client(ctx))
        except BaobabError as error:
            data = render_error_data(error)
            raise MCPError(types.INVALID_PARAMS, data["message"], data) from None
        # People type the name of an app, but the argument is its id.
        ids = [app["id"] for app in apps if app["id"].startswith(prefix) or app["name"].casefold().startswith(prefix)]
        has_more = len(ids) > _MOST_VALUES or len(apps) >= MOST
        return types.CompleteResult(
            completion=types.Completion(values=ids[:_MOST_VALUES], total=len(ids), has_more=has_more)
        )


def _is_app_argument(params: types.CompleteRequestParams) -> bool:
    ref = params.ref
    is_known = ref.name == QUICKSTART if isinstance(ref, types.PromptReference) else ref.uri in (APP, SCHEMA)
    return is_known and params.argument.name in ("app_id", "name")
