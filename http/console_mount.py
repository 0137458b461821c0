"""Mounts the pages that are made of templates, which are loaded at the first request of one."""

import importlib
from typing import Any

from starlette.routing import Mount, Route

from baobab.http.request import Scope
from baobab.runtime.late_import import LateImport
from baobab.tools.core.registry import Registry

PATH = "/console"


class PageMount:
    """An ASGI application that is made once somebody has opened it. name: its class, in a module of the package."""

    def __init__(self, registry: Registry, module: str, name: str) -> None:
        self._pages: LateImport[Any] = LateImport(
            lambda: getattr(importlib.import_module(f"baobab.http.{module}"), name)(registry)
        )

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        pages = await self._pages.get()
        await pages(scope, receive, respond)


def console_routes(registry: Registry) -> list[Mount | Route]:
    console = PageMount(registry, "console.console", "Console")
    return [Route(PATH, console, include_in_schema=False), Mount(PATH, console)]


def login_page_route(registry: Registry) -> Route:
    return Route("/auth/{app_id}/login-page", PageMount(registry, "login_page.page", "LoginPage"))
