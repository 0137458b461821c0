"""Mounts the console: its modules and its template library are loaded at the first request of a page of it."""

import importlib
from typing import Any

from starlette.routing import Mount, Route

from baobab.http.request import Scope
from baobab.runtime.late_import import LateImport
from baobab.tools.core.registry import Registry

PATH = "/console"


class ConsoleMount:
    """An ASGI application that is the console once somebody has opened it."""

    def __init__(self, registry: Registry) -> None:
        self._console: LateImport[Any] = LateImport(
            lambda: importlib.import_module("baobab.http.console.console").Console(registry)
        )

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        console = await self._console.get()
        await console(scope, receive, respond)


def console_routes(registry: Registry) -> list[Mount | Route]:
    console = ConsoleMount(registry)
    return [Route(PATH, console, include_in_schema=False), Mount(PATH, console)]
