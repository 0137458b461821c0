"""The annex: FastAPI and the MCP server, opened beside a house that answers already.

Importing them takes a second of CPU. It happens in a thread after the start; a request for what they serve waits.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from baobab import __version__
from baobab.http.answer import reply_to, send_error
from baobab.http.metrics import CallMetrics
from baobab.settings import Settings
from baobab.tools.envelopes import STRUCTURED
from baobab.tools.errors import Internal, Unavailable
from baobab.tools.registry import Registry

_PATIENCE_SECONDS = 30

Scope = dict[str, Any]

_log = logging.getLogger(__name__)


class Annex:
    """An ASGI application that is there once it has been loaded."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        metrics: CallMetrics,
        extensions: Sequence[Any] = (),
        *,
        sessions: bool = False,
    ) -> None:
        """extensions: what the MCP door serves beside our own (mcp_server/extension.py); sessions: see McpDoor."""
        self._registry = registry
        self._settings = settings
        self._metrics = metrics
        self._extensions = extensions
        self._sessions = sessions
        self._application: Any = None
        self._door: Any = None
        self._ready = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        # The MCP server's task group must be left by the task that entered it.
        task = asyncio.create_task(self._stand(stop), name="annex")
        try:
            yield
        finally:
            stop.set()
            await task

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        if not self._ready.is_set():
            try:
                await asyncio.wait_for(self._ready.wait(), _PATIENCE_SECONDS)
            except TimeoutError:
                docs = f"{self._settings.address}/docs"
                error = Unavailable("This part of the server is still starting.")
                await send_error(reply_to(scope, respond), error, STRUCTURED, docs, [])
                return
        # An agent's every call comes this way: it does not pass through FastAPI.
        serve = self._door if scope["path"] == "/mcp" else self._application
        await serve(scope, receive, respond)

    async def _stand(self, stop: asyncio.Event) -> None:
        try:
            self._application, self._door = await asyncio.to_thread(self._load)
        except Exception:  # noqa: BLE001 - whatever it is, the rest of the server goes on
            # The tools answer all the same; what this part serves says at once that it is broken.
            _log.exception("FastAPI and the MCP server did not load")
            self._application = self._door = self._broken
            self._ready.set()
            return
        async with self._door.manager.run():
            # What start-up made stays: out of the collector's rounds it cuts the slowest answers under load.
            gc.collect()
            gc.freeze()
            self._ready.set()
            await stop.wait()
            self._ready.clear()

    async def _broken(self, scope: Scope, _receive: Any, respond: Any) -> None:
        await send_error(reply_to(scope, respond), Internal(), STRUCTURED, f"{self._settings.address}/docs", [])

    def _load(self) -> tuple[Any, Any]:
        from baobab.http.behind import behind
        from baobab.mcp_server.completion import Completion
        from baobab.mcp_server.door import McpDoor
        from baobab.mcp_server.errors import ERRORS
        from baobab.mcp_server.oauth.routes import oauth_routes
        from baobab.mcp_server.prompts import Prompts
        from baobab.mcp_server.resources import Resources

        self._registry.prepare()
        extensions = [Resources(self._registry), Prompts(self._registry), Completion(self._registry), *self._extensions]
        door = McpDoor(self._registry, __version__, extensions, sessions=self._sessions)
        application = behind(
            self._registry,
            version=__version__,
            base_url=self._settings.address,
            metrics=self._metrics,
            metrics_token=self._settings.metrics_token,
            routes=oauth_routes(self._registry, self._settings.address),
            of_doors=ERRORS,
        )
        return application, door
