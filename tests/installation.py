"""Installations that a test opens itself: with a clock of its own, or one for a whole module of tests."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from baobab.server import Server
from baobab.settings import load_settings
from baobab.tools.core.limits.rate_limits import RateLimits
from baobab.tools.core.services import Services
from tests.backends import prepare_data
from tests.conftest import ADDRESS, KEY, Baobab


def get_asgi_app(client: httpx.AsyncClient) -> Any:
    """The application in this process that a client speaks to."""
    transport = client._transport
    assert isinstance(transport, httpx.ASGITransport)
    return transport.app


def reset_rate_limits(services: Services) -> None:
    """Let everybody call again as often as ever: for tests that make more calls than anybody may."""
    limits = services.limits
    assert isinstance(limits, RateLimits)
    limits._windows.clear()


@contextlib.asynccontextmanager
async def open_installation(data: Path, variables: dict[str, str] | None = None, **parts: Any) -> AsyncIterator[Baobab]:
    """Opens an installation. parts: what the composition takes instead of its own parts, such as a clock."""
    environment = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, **(variables or {})}
    server = Server(load_settings({**prepare_data(data), **environment}, data=data), **parts)
    async with server.open() as application:
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            yield Baobab(application, client)
