"""The server: the application and its interfaces (REST and MCP) as one ASGI application."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from baobab.composition import open_application
from baobab.http.metrics import CallMetrics
from baobab.http.request import Scope
from baobab.http.rest_app import RestApp
from baobab.lazy_mount import LazyMount
from baobab.logs import configure
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.tracing import Tracing
from baobab.settings import Settings, load_settings
from baobab.storage.copies import CopyMark
from baobab.tools.accounts.first_account import ensure_first_account, first_account
from baobab.tools.console.sessions import create_link
from baobab.tools.core.lifecycle import Lifecycle
from baobab.tools.core.own_door import OwnDoor
from baobab.waiting import Waiting


class Server:
    """The ASGI application that uvicorn runs: it opens the application when the lifespan starts and closes it at the
    end.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        extensions: Sequence[Any] = (),
        sessions: bool = False,
        import_interfaces: Callable[[], Any] | None = None,
        **parts: Any,
    ) -> None:
        """extensions, sessions: passed to the MCP endpoint. import_interfaces: replaces the function with which the
        lazy mount imports FastAPI and the MCP server. parts: passed to `open_application`.
        """
        self._settings = settings
        self._extensions = extensions
        self._sessions = sessions
        self._import_interfaces = import_interfaces
        self._parts = parts
        self.rest_app: RestApp | None = None
        self.lifecycle = Lifecycle()
        self.first_key: str | None = None
        self.link_lifetime: timedelta | None = None
        """How long the one-time link to the console is valid that is made at the start; None: none is made."""
        self.console_link: str | None = None
        self.waiting = Waiting()
        self.mark: CopyMark | None = None
        """Set if the installation was a copy at the start."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            assert self.rest_app is not None
            await self.rest_app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def open(self) -> Any:
        """Opens the application and its interfaces. Tests call it directly, without a lifespan."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            application = await stack.enter_async_context(open_application(settings, **self._parts))
            self.lifecycle = application.services.lifecycle
            self.waiting = application.waiting
            self.mark = application.services.liveness.mark
            self.first_key = await ensure_first_account(application.services, settings.bootstrap_key or None)
            if self.link_lifetime is not None:
                owner = await first_account(application.services)
                self.console_link = await create_link(application.services, owner.account_id, self.link_lifetime)
            metrics = CallMetrics()
            application.registry.observers.append(metrics)
            application.services.flushes.append(metrics.flush)
            application.services.part(Gateway).observers.append(metrics.observe_model)
            if Tracing in application.services.parts:
                application.registry.observers.append(application.services.part(Tracing).observe)
            lazy_mount = LazyMount(
                application.registry,
                settings,
                metrics,
                self._extensions,
                sessions=self._sessions,
                import_interfaces=self._import_interfaces,
            )
            await stack.enter_async_context(lazy_mount.open())
            self.rest_app = RestApp(
                application.registry, lazy_mount, hosts=list_own_hosts(settings), access_log=settings.access_log
            )
            application.services.part(OwnDoor).app = self.rest_app
            yield application

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        async with self.open():
            self._drain_at_sigterm()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _drain_at_sigterm(self) -> None:
        """Replaces the SIGTERM handler that uvicorn has set in this worker by one that drains first."""
        stop = signal.getsignal(signal.SIGTERM)
        if callable(stop) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, partial(self.drain, stop))

    def drain(self, stop: Callable[[int, Any], object], number: int, frame: Any) -> None:
        """Reports `draining` to load balancers and calls `stop` after `drain_seconds`; at once the second time."""
        seconds = 0 if self.lifecycle.draining else self._settings.drain_seconds
        self.lifecycle.draining = True
        if seconds:
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, seconds, stop, number, frame)
        else:
            stop(number, frame)


def list_own_hosts(settings: Settings) -> list[str]:
    return [urlsplit(settings.address).hostname or "", *settings.allowed_hosts]


def create() -> Server:
    """Creates the server of a worker process, with settings from the environment."""
    settings = load_settings()
    configure(settings.log_level)
    _end_with_parent()
    return Server(settings, environment=os.environ)


def _end_with_parent() -> None:
    """Stops this worker when its parent process has ended. A parent that is killed cannot tell its workers to stop."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def export_environment(settings: Settings) -> None:
    """Writes the settings into the environment, where worker processes read them."""
    for name, value in settings.model_dump().items():
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        os.environ[f"BAOBAB_{name.upper()}"] = text
