"""Methods of the protocols before 2026 that the product leaves out: it has no log and no resource to tell about."""

from typing import ClassVar

import mcp_types as types

from baobab.mcp_server.extension import Context, Extension


async def _taken(ctx: Context, params: types.RequestParams) -> types.EmptyResult:
    return types.EmptyResult()


class EarlierMethods(Extension):
    methods: ClassVar = {
        "logging/setLevel": (types.SetLevelRequestParams, _taken),
        "resources/subscribe": (types.SubscribeRequestParams, _taken),
        "resources/unsubscribe": (types.UnsubscribeRequestParams, _taken),
    }
