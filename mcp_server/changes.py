"""Changes: telling clients that a list they hold is stale, over the 2026 subscription and the older GET stream."""

from typing import Any

import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from baobab.mcp_server.visitor import Visitor
from baobab.tools.registry import Registry


class Changes:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._handler = ListenHandler(InMemorySubscriptionBus())

    async def listen(self, ctx: Any, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Serve one `subscriptions/listen` stream until its client leaves or its credential ends."""
        return await self._handler(ctx, params)

    async def stream(self, visitor: Visitor, scope: dict[str, Any], receive: Any, respond: Any) -> None:
        """Serve one GET stream of the protocols before 2026."""
        raise NotImplementedError
