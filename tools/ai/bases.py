"""The two base paths of each wire format: `/v1`, for an organisation, and `/v1/{app_id}`, under an app's settings."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from baobab.tools.ai.access import GATEWAY_CALLERS
from baobab.tools.ai.errors import ModelNotAllowed
from baobab.tools.ai.toolset import ai, app_messages, gateway, messages
from baobab.tools.core import AppId, BaobabError, Call, Mcp, Rest, Toolset
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.call import Handler, Limit

_MCP, _REST = Mcp(), Rest()
_APP = inspect.Parameter("app_id", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=AppId)


@dataclass(frozen=True, slots=True)
class Bases:
    """One wire format: the toolset of its tools at `/v1`, and the toolset of the same tools in an app."""

    gateway: Toolset
    app: Toolset

    def tool(
        self,
        route: str,
        *,
        in_app: str,
        raises: Sequence[type[BaobabError]] = (),
        also: str = "",
        limit: Limit | Literal["default"] = "default",
        mcp: Mcp = _MCP,
        rest: Rest = _REST,
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        """Registers the decorated function as a tool of both toolsets.

        The function takes no `app_id`; `call.app` is the app, if there is one. in_app: the name of the app's tool.
        also: a second path of that tool below the app's base, for clients that add a part of the path themselves.
        limit: the rate limit of the calls at `/v1`; those in an app count towards the app's.
        """

        def register(handler: Handler) -> Handler:
            self.gateway.tool(
                route,
                access=GATEWAY_CALLERS,
                raises=(*raises, ModelNotAllowed),
                limit=limit,
                mcp=mcp,
                rest=rest,
                **options,
            )(handler)
            self.app.tool(
                route,
                access=OF_APP,
                raises=(*raises, ModelNotAllowed),
                rest=replace(rest, also=(also,) if also else ()),
                # Over MCP `ai_chat` suffices; the other wire formats are for clients of those APIs.
                mcp=replace(mcp, offered=False),
                **options,
            )(_in_app(handler, in_app))
            return handler

        return register


def _in_app(handler: Handler, name: str) -> Handler:
    """Wraps the handler as a tool with an `app_id` parameter."""
    signature = inspect.signature(handler)
    call, *parameters = signature.parameters.values()

    async def handle(call: Call, app_id: str, **arguments: Any) -> Any:  # noqa: ARG001 - the registry has found the app
        return await handler(call, **arguments)

    handle.__name__, handle.__doc__, handle.__module__ = name, handler.__doc__, handler.__module__
    handle.__annotations__ = {**handler.__annotations__, "app_id": AppId}
    handle.__signature__ = signature.replace(parameters=[call, _APP, *parameters])  # type: ignore[attr-defined]  # `inspect` reads it
    return handle


OPENAI, ANTHROPIC = Bases(gateway, ai), Bases(messages, app_messages)
