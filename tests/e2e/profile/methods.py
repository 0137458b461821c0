"""Methods of the protocols before 2026 that the product leaves out: it has no log and no resource to tell about."""

from collections.abc import Mapping

import mcp_types as types

from baobab.mcp_server.extension import Context, Extension, Method


async def _accept(ctx: Context, params: types.RequestParams) -> types.EmptyResult:
    return types.EmptyResult()


class EarlierMethods(Extension):
    methods: Mapping[str, tuple[type[types.RequestParams], Method]] = {
        "logging/setLevel": (types.SetLevelRequestParams, _accept),
        "resources/subscribe": (types.SubscribeRequestParams, _accept),
        "resources/unsubscribe": (types.UnsubscribeRequestParams, _accept),
    }
