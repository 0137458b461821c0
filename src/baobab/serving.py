"""Serving: the house on a socket, in one process or several."""

import asyncio
import os
import tempfile

import click
import uvicorn

from baobab import __version__, server
from baobab.http.protocol import GuardedProtocol
from baobab.logs import configure
from baobab.settings import Settings

_GRACE_SECONDS = 10
_KEEP_ALIVE_SECONDS = 75


def run(settings: Settings) -> None:
    """Serve until told to stop."""
    configure(settings.log_level)
    if settings.workers == 1:
        application = server.Server(settings)
        _OneProcess(_config(settings, application), settings, application).run()
        return
    application = server.Server(settings)
    # Several processes must not race for the first start; this one makes everything that they then find.
    asyncio.run(_prepare(application))
    server.environment(settings)
    with tempfile.TemporaryDirectory(prefix="baobab-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        click.echo(welcome(settings, application.first_key), err=True)
        uvicorn.run(**_arguments(settings), app="baobab.server:create", factory=True, workers=settings.workers)


class _OneProcess(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, settings: Settings, application: "server.Server") -> None:
        super().__init__(config)
        self._settings = settings
        self._application = application

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            click.echo(welcome(self._settings, self._application.first_key), err=True)


def welcome(settings: Settings, key: str | None) -> str:
    """What a person needs to go on."""
    address = settings.address
    shown = key or "YOUR_KEY"
    header = f'"Authorization: Bearer {shown}"'
    lines = [
        f"Baobab {__version__} is ready.",
        "",
        f"  API key  {key}   (shown this once)" if key else "  API key  the one shown at the first start; `baobab keys create NAME` makes another",
        f"  REST     {address}",
        f"  MCP      {address}/mcp",
        f"  Docs     {address}/docs",
        "",
        "  Add it to an MCP client:",
        f'    {{"mcpServers": {{"baobab": {{"type": "http", "url": "{address}/mcp", "headers": {{"Authorization": "Bearer {shown}"}}}}}}}}',
        "  Make an app:",
        f"    curl -s {address}/init -H {header} -d '{{\"name\": \"hello\"}}'",
        "",
    ]
    return "\n".join(lines)


async def _prepare(application: "server.Server") -> None:
    async with application.open():
        pass


def _config(settings: Settings, application: "server.Server") -> uvicorn.Config:
    return uvicorn.Config(app=application, **_arguments(settings))  # type: ignore[arg-type]


def _arguments(settings: Settings) -> dict[str, object]:
    return {
        "host": settings.host,
        "port": settings.port,
        "http": GuardedProtocol,
        "loop": "uvloop",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": bool(settings.trusted_proxies),
        "forwarded_allow_ips": list(settings.trusted_proxies),
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": _GRACE_SECONDS,
    }
