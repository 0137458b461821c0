"""The FastAPI application behind the RestApp: pages, the OpenAPI document, metrics, sign-in and OAuth."""

import asyncio
import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic_core import to_json
from starlette.routing import BaseRoute, Mount, Route

from baobab.http import openapi
from baobab.http.answer import error_headers
from baobab.http.error_page import build_error_page
from baobab.http.guides_page import guide_routes
from baobab.http.home_page import home_routes, missing_page
from baobab.http.metrics import CallMetrics
from baobab.http.page_routes import docs_routes, metrics_route, moved_routes
from baobab.http.public_document import PublicDocument
from baobab.http.request import Scope
from baobab.http.session_routes import session_routes
from baobab.http.tls_ask import tls_ask_route
from baobab.runtime.late_import import LateImport
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import BaobabError, MethodNotAllowed
from baobab.tools.core.outages import STORE_OUTAGES, Outage, translate_outage
from baobab.tools.core.registry import Registry

PATH = "/console"


class PageMount:
    """An ASGI application that is created when somebody first opens it. name: its class, in a module of the package."""

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


def user_page_routes(registry: Registry) -> list[Route]:
    """Returns the routes of our pages for users of apps."""
    connect = PageMount(registry, "connect_pages", "ConnectPages")
    return [
        Route("/auth/{app_id}/login-page", PageMount(registry, "login_page.page", "LoginPage")),
        Route("/auth/{app_id}/approvals", PageMount(registry, "login_page.approvals", "UserApprovals")),
        *(Route(f"/auth/{{app_id}}/connect{page}", connect) for page in ("", "/simulator", "/done")),
    ]


def build_fastapi_app(
    registry: Registry,
    *,
    version: str,
    base_url: str,
    metrics: CallMetrics,
    metrics_token: str,
    routes: Sequence[BaseRoute] = (),
    interface_errors: Sequence[type[BaobabError]] = (),
) -> FastAPI:
    app = FastAPI(title="Baobab", version=version, openapi_url=None, docs_url=None, redoc_url=None)
    app.openapi = cache(lambda: openapi.build_document(registry, version, base_url))  # type: ignore[method-assign]  # FastAPI's own way
    describe = cache(lambda: PublicDocument(to_json(app.openapi()), "application/json"))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json(request: Request) -> Response:
        await asyncio.to_thread(registry.describe_results)
        return await describe().answer(request)

    list_errors = cache(lambda: build_error_page(registry, interface_errors))

    @app.get("/docs/errors", include_in_schema=False)
    async def errors(request: Request) -> Response:
        return await list_errors().answer(request)

    @app.exception_handler(405)
    async def wrong_method(_request: Request, exc: HTTPException) -> Response:
        body = to_json(STRUCTURED.render(MethodNotAllowed(), f"{base_url}/docs"))
        return Response(body, 405, exc.headers, "application/json")

    missing = missing_page(f"{base_url}/docs")

    async def answer_outage(request: Request, exc: Exception) -> Response:
        error = translate_outage(cast(Outage, exc), request.headers.get("x-request-id", ""))
        error.naming = registry.name_by_route
        headers = {**error_headers(error), "cache-control": "no-store"}
        return Response(
            to_json(STRUCTURED.render(error, f"{base_url}/docs")), error.status, headers, "application/json"
        )

    for kind in STORE_OUTAGES:
        app.add_exception_handler(kind, answer_outage)
    pages = [*home_routes(version, base_url, missing), *docs_routes(), *guide_routes(missing), *moved_routes()]
    app.router.routes.extend([*pages, metrics_route(registry, metrics, metrics_token), tls_ask_route(registry)])
    app.router.routes.extend(
        [
            *session_routes(registry),
            *console_routes(registry),
            *user_page_routes(registry),
            *routes,
        ]
    )
    app.router.default = missing
    return app
