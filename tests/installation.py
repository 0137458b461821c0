"""Installations that a test opens itself: with a clock of its own, or one for a whole module of tests."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from baobab.server import Server
from baobab.settings import load
from tests.columns import begin
from tests.conftest import ADDRESS, KEY, Baobab


@contextlib.asynccontextmanager
async def installation(data: Path, variables: dict[str, str] | None = None, **parts: Any) -> AsyncIterator[Baobab]:
    """What the fixture `baobab` is; `parts` are what the composition takes instead of its own, such as a clock."""
    environment = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, **(variables or {})}
    server = Server(load({**environment, **begin(data)}, data=data), **parts)
    async with server.open() as house:
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            yield Baobab(house, client)
