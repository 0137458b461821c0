"""The server: the house behind its doors, as one ASGI application."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from baobab.annex import Annex
from baobab.composition import house
from baobab.http.front import Front
from baobab.http.metrics import CallMetrics
from baobab.http.request import Scope
from baobab.logs import configure
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.tracing import Tracing
from baobab.settings import Settings, load
from baobab.tools.accounts.first import ensure_first_account
from baobab.tools.core.lifecycle import Lifecycle


class Server:
    """Opens the house when the lifespan starts and closes it when it ends; in between the front answers."""

    def __init__(
        self,
        settings: Settings,
        *,
        extensions: Sequence[Any] = (),
        sessions: bool = False,
        import_doors: Callable[[], Any] | None = None,
        **parts: Any,
    ) -> None:
        """extensions, sessions: what the MCP door is given beside our own; import_doors: how the annex imports what it
        serves, left out as usual; parts: what the composition is given.
        """
        self._settings = settings
        self._extensions = extensions
        self._sessions = sessions
        self._import_doors = import_doors
        self._parts = parts
        self.front: Front | None = None
        self.lifecycle = Lifecycle()
        self.first_key: str | None = None

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            assert self.front is not None
            await self.front(scope, receive, send)

    @contextlib.asynccontextmanager
    async def open(self) -> Any:
        """The house with its doors open: what tests enter without a lifespan."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            home = await stack.enter_async_context(house(settings, **self._parts))
            self.lifecycle = home.services.lifecycle
            self.first_key = await ensure_first_account(home.services, settings.bootstrap_key or None)
            metrics = CallMetrics()
            home.registry.observers.append(metrics)
            home.services.part(Gateway).observers.append(metrics.observe_model)
            if Tracing in home.services.parts:
                home.registry.observers.append(home.services.part(Tracing).observe)
            annex = Annex(
                home.registry,
                settings,
                metrics,
                self._extensions,
                sessions=self._sessions,
                import_doors=self._import_doors,
            )
            await stack.enter_async_context(annex.open())
            self.front = Front(home.registry, annex, hosts=own_hosts(settings), access_log=settings.access_log)
            yield home

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        async with self.open():
            self._drain_at_sigterm()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _drain_at_sigterm(self) -> None:
        """Put our handler before the one that uvicorn has set in this worker."""
        stop = signal.getsignal(signal.SIGTERM)
        if callable(stop) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, partial(self.drain, stop))

    def drain(self, stop: Callable[[int, Any], object], number: int, frame: Any) -> None:
        """Tell balancers that this process will stop, and stop when they have had time to see it; the second time at
        once.
        """
        seconds = 0 if self.lifecycle.draining else self._settings.drain_seconds
        self.lifecycle.draining = True
        if seconds:
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, seconds, stop, number, frame)
        else:
            stop(number, frame)


def own_hosts(settings: Settings) -> list[str]:
    return [urlsplit(settings.address).hostname or "", *settings.allowed_hosts]


def create() -> Server:
    """What a worker process starts: settings come from the environment."""
    settings = load()
    configure(settings.log_level)
    _end_with_parent()
    return Server(settings, environment=os.environ)


def _end_with_parent() -> None:
    """Stop this worker when the process that started it is gone: killed, it can tell nobody to stop."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def environment(settings: Settings) -> None:
    """Hand settings on to worker processes."""
    for name, value in settings.model_dump().items():
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        os.environ[f"BAOBAB_{name.upper()}"] = text
