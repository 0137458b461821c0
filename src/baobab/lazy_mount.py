"""The lazy mount: FastAPI and the MCP server, loaded after the server has begun to answer.

Their import takes a second of CPU. It runs in a thread after the start, and requests that need them wait. A failed
import is tried again; meanwhile `/health/ready` reports it.
"""

import asyncio
import contextlib
import gc
import importlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from baobab import __version__
from baobab.http.answer import reply_to, send_error
from baobab.http.metrics import CallMetrics
from baobab.http.request import Scope
from baobab.runtime.late_import import LateImport
from baobab.settings import Settings
from baobab.storage.secrets import load_or_create_token
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import Unavailable
from baobab.tools.core.registry import Registry

_WAIT_SECONDS = 30
"""How long a request waits for the interfaces to load: enough on a machine that is ten times slower than usual. Clients
wait longer than that.
"""
_RETRY_AFTER = 10
"""In how many seconds a request that was not answered is to be sent again."""
_RETRY_SECONDS = (1, 2, 5, 10)
"""Pauses between attempts to load; the last is repeated."""
_PART = "mcp"

_log = logging.getLogger(__name__)


class LazyMount:
    """An ASGI application that answers as soon as FastAPI and the MCP server are loaded."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        metrics: CallMetrics,
        extensions: Sequence[Any] = (),
        *,
        sessions: bool = False,
        import_interfaces: Callable[[], Any] | None = None,
    ) -> None:
        """extensions: what the MCP endpoint serves beside our own (mcp_server/extension.py). sessions: see McpEndpoint.
        import_interfaces: imports the module `baobab.interfaces`; runs in a thread.
        """
        self._registry = registry
        self._settings = settings
        self._metrics = metrics
        self._extensions = extensions
        self._sessions = sessions
        self._libraries = LateImport(import_interfaces or _import_interfaces)
        self._states = registry.services.lifecycle.parts
        self._missing = registry.services.lifecycle.missing
        self._states[_PART] = "starting"
        self._fastapi_app: Any = None
        self._mcp_endpoint: Any = None
        self._ready = asyncio.Event()
        self._metrics_token = settings.metrics_token or load_or_create_token(settings.metrics_file)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Loads the interfaces in the background, and closes them on exit."""
        stop = asyncio.Event()
        # The MCP server's task group must be left by the task that entered it.
        task = asyncio.create_task(self._run(stop), name="lazy-mount")
        try:
            yield
        finally:
            stop.set()
            await task

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        if not self._ready.is_set() and not await self._wait_until_ready():
            docs = f"{self._settings.address}/docs"
            error = Unavailable("This part of the server is still starting.", retry_after=_RETRY_AFTER)
            await send_error(reply_to(scope, respond), error, STRUCTURED, docs, [])
            return
        # Every MCP call comes this way, so it does not pass through FastAPI.
        serve = self._mcp_endpoint if scope["path"] in ("/mcp", "/mcp/") else self._fastapi_app
        await serve(scope, receive, respond)

    async def _wait_until_ready(self) -> bool:
        """Waits until the interfaces are loaded, for a limited time; returns whether they are. If loading has failed,
        it returns False at once.
        """
        if self._states[_PART] == "failed":
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), _WAIT_SECONDS)
        return self._ready.is_set()

    async def _run(self, stop: asyncio.Event) -> None:
        attempt = 0
        while not await self._load():
            self._states[_PART] = "failed"
            pause = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)]
            attempt += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
                return
        async with self._mcp_endpoint.manager.run():
            # The objects made so far live on: without them in garbage collection the slowest answers are faster.
            gc.collect()
            gc.freeze()
            self._states[_PART] = "ok"
            self._ready.set()
            await stop.wait()
            self._ready.clear()
            self._states[_PART] = "starting"

    async def _load(self) -> bool:
        """Imports and builds FastAPI and the MCP server; returns whether that succeeded."""
        try:
            build = await self._libraries.get()
            self._fastapi_app, self._mcp_endpoint = await asyncio.to_thread(self._build, build)
        except ModuleNotFoundError as exc:
            self._note_missing(str(exc.name))
            return False
        except Exception:  # noqa: BLE001 - the rest of the server keeps running, and loading is tried again
            _log.exception("FastAPI and the MCP server did not load; they are loaded again in some seconds")
            return False
        self._missing.pop(_PART, None)
        return True

    def _note_missing(self, module: str) -> None:
        """Logs once which module must be installed: further attempts fail until it is."""
        if self._missing.get(_PART) != module:
            self._missing[_PART] = module
            _log.error("/mcp and /docs are not served: the Python module is not installed", extra={"missing": module})

    def _build(self, interfaces: Any) -> tuple[Any, Any]:
        registry, address = self._registry, self._settings.address
        registry.prepare()
        own = [interfaces.Resources(registry), interfaces.Prompts(registry), interfaces.Completion(registry)]
        mcp_endpoint = interfaces.McpEndpoint(registry, __version__, [*own, *self._extensions], sessions=self._sessions)
        fastapi_app = interfaces.build_fastapi_app(
            registry,
            version=__version__,
            base_url=address,
            metrics=self._metrics,
            metrics_token=self._metrics_token,
            routes=interfaces.oauth_routes(registry, address),
            interface_errors=interfaces.ERRORS,
        )
        return fastapi_app, mcp_endpoint


def _import_interfaces() -> Any:
    return importlib.import_module("baobab.interfaces")
