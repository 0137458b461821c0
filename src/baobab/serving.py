"""Serves the application on a socket, in one process or several."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import click
import uvicorn
import uvloop
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.supervisors import Multiprocess

from baobab import __version__, server
from baobab.http.protocol import FileProtocol
from baobab.logs import configure
from baobab.neighbours import join_data_folder
from baobab.runtime.gateway.providers import list_providers, parse_servers
from baobab.settings import Settings
from baobab.storage.copies import CopyMark
from baobab.tools.console.sessions import LINK_LIFETIME, LOGGED_LINK_LIFETIME

_BACKLOG = 2048
_GRACE_SECONDS = 10
_HUNG_SECONDS = 60
_KEEP_ALIVE_SECONDS = 75
MOST_MESSAGE_BYTES = 8192
"""The most bytes of an incoming WebSocket message, whole or in fragments; a larger one closes it with 1009."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_KEY_ELSEWHERE = "the one shown at the first start; `baobab keys create NAME` creates another"
_KEY_CHOSEN = "the one of BAOBAB_BOOTSTRAP_KEY; `baobab keys create NAME` creates another"


def run(settings: Settings) -> None:
    """Serves requests until the process is told to stop."""
    configure(settings.log_level)
    # Bind the port first: if it is in use, the first API key must not be created and then lost.
    with _create_listener(settings) as listener, join_data_folder(settings.data) as neighbours:
        if neighbours:
            click.echo(_warn_of_neighbours(settings, neighbours), err=True)
        if settings.workers == 1:
            _serve_in_process(settings, listener)
        else:
            _serve_in_workers(settings, listener)


def _warn_of_neighbours(settings: Settings, neighbours: list[int]) -> str:
    processes = ", ".join(map(str, neighbours))
    return (
        f"Another server runs on the data folder {settings.data.resolve()} already (process {processes}). Both serve "
        "the same apps. If you did not mean this, stop one of them, or choose another folder with BAOBAB_DATA."
    )


def _create_listener(settings: Settings) -> socket.socket:
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as exc:
        message = f"cannot listen on {settings.host}:{settings.port}: {exc.strerror}"
        if exc.errno == errno.EADDRINUSE:
            message += ". Stop the server that uses the port, or choose another one with BAOBAB_PORT"
        raise OSError(exc.errno, message) from exc


def _serve_in_process(settings: Settings, listener: socket.socket) -> None:
    asgi_server = server.Server(settings, environment=os.environ)
    asgi_server.link_lifetime = _choose_link_lifetime(settings)

    async def serve() -> None:
        # Opened here and not in uvicorn's lifespan, so that a failure to open reaches the caller as an exception.
        async with asgi_server.open():
            # The RestApp itself, so that no wrapper adds to the time of each request.
            rest_app: Any = asgi_server.rest_app
            config = uvicorn.Config(app=rest_app, lifespan="off", **_uvicorn_options(settings))
            await _SingleProcessServer(config, settings, asgi_server).serve([listener])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _serve_in_workers(settings: Settings, listener: socket.socket) -> None:
    asgi_server = server.Server(settings)
    asgi_server.link_lifetime = _choose_link_lifetime(settings)
    # Worker processes must not race for the first start: this process creates the data folder and account for them.
    asyncio.run(_run_first_start(asgi_server))
    server.export_environment(settings)
    with tempfile.TemporaryDirectory(prefix="baobab-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        click.echo(render_welcome(settings, asgi_server), err=True)
        config = uvicorn.Config(
            app="baobab.cli.servers:create_server",
            factory=True,
            workers=settings.workers,
            lifespan="on",
            **_uvicorn_options(settings),
        )
        Multiprocess(config, [listener]).run()


def _choose_link_lifetime(settings: Settings) -> timedelta | None:
    """Returns how long the link that signs in to the console is valid; None where others than this machine's users
    could use a link that they find in a log.
    """
    if sys.stderr.isatty():
        return LINK_LIFETIME
    is_local = settings.host in _LOOPBACK and urlsplit(settings.address).hostname in _LOOPBACK
    return LOGGED_LINK_LIFETIME if is_local else None


class _SingleProcessServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, settings: Settings, asgi_server: "server.Server") -> None:
        super().__init__(config)
        self._settings = settings
        self._asgi_server = asgi_server

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            click.echo(render_welcome(self._settings, self._asgi_server), err=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals as uvicorn does, but does not raise them again at the end: the application must still be
        closed.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._asgi_server.drain, self.handle_exit, signal.SIGTERM, None)
        loop.add_signal_handler(signal.SIGINT, self.handle_exit, signal.SIGINT, None)
        yield


def _describe_models(settings: Settings) -> str:
    names = [provider.name for provider in list_providers(os.environ, parse_servers(settings.ai_servers))]
    return ", ".join(names) or "built-in ones only; set OPENAI_API_KEY, ANTHROPIC_API_KEY or another provider's"


def render_link(settings: Settings, secret: str, lifetime: timedelta) -> str:
    """Renders the address that signs in to the console once, and for how long it does."""
    minutes = lifetime // timedelta(minutes=1)
    return f"{settings.address}/console/sign-in?link={secret}   (once, within {minutes} minutes)"


def render_welcome(settings: Settings, asgi_server: "server.Server") -> str:
    """Renders what the operator reads at the start: where to begin, the key at the first start, and the addresses."""
    address, key = settings.address, asgi_server.first_key
    link = f"{address}/console   (`baobab sign-in-link` prints a link that signs you in)"
    if asgi_server.console_link is not None and asgi_server.link_lifetime is not None:
        link = render_link(settings, asgi_server.console_link, asgi_server.link_lifetime)
    # A key that the operator has chosen is not written into the log.
    key_text = _KEY_CHOSEN if settings.bootstrap_key else f"{key}   (shown this once)" if key else _KEY_ELSEWHERE
    lines = [
        f"Baobab {__version__} is ready.",
        "",
        f"  {'Set up' if key else 'Console':8} {link}",
        f"  API key  {key_text}",
        f"  REST     {address}",
        f"  MCP      {address}/mcp   (`baobab connect` prints the line of your client)",
        f"  Docs     {address}/docs",
        f"  Models   {_describe_models(settings)}",
        *(f"  Waiting  {line}" for line in asgi_server.waiting.describe()),
        *_describe_copy(asgi_server.mark),
        "",
    ]
    return "\n".join(lines)


def _describe_copy(mark: CopyMark | None) -> list[str]:
    if mark is None:
        return []
    return [
        "",
        f"  THIS IS A COPY since {mark.since:%Y-%m-%d %H:%M} UTC: {mark.how}.",
        "  It sends no mail or webhook and starts no agent. If it is the one that shall live, stop the original, then",
        "  start this one with `baobab serve --live`. Requests that it would send are refused until then.",
    ]


async def _run_first_start(asgi_server: "server.Server") -> None:
    async with asgi_server.open():
        pass


def _uvicorn_options(settings: Settings) -> dict[str, Any]:
    return {
        "http": FileProtocol,
        "ws": QuietSocketProtocol,
        "ws_max_size": MOST_MESSAGE_BYTES,
        "loop": "uvloop",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": bool(settings.trusted_proxies),
        "forwarded_allow_ips": list(settings.trusted_proxies),
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": _GRACE_SECONDS,
        # On an overloaded machine, a worker that is only slow to answer must not be taken for dead.
        "timeout_worker_healthcheck": _HUNG_SECONDS,
    }


class QuietSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, but a text that is not UTF-8 closes the socket with 1007 instead of logging an
    error.
    """

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # Refused before the handshake, which uvicorn would otherwise report as a missing answer.
            self.handshake_complete = True
