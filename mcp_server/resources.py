"""Resources: what a model may read before it acts, by address: how to use this server, its documentation, and each
app of the visitor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from pydantic_core import to_json

from baobab.mcp_server.apps import own_app, own_apps
from baobab.mcp_server.catalogue import Catalogue
from baobab.mcp_server.extension import Context, Extension
from baobab.mcp_server.visitor import Visitor, visitor
from baobab.tools.core.guides import Guide, GuideNotFound, find_guide, guides
from baobab.tools.core.registry import Registry

GUIDANCE = "baobab://llms.txt"
APP = "baobab://apps/{app_id}"

_GUIDANCE_TOOL = "system_llms_txt"
_GUIDES = "baobab://docs/"
_APPS = APP.removesuffix("{app_id}")
_JSON = "application/json"
_MARKDOWN = "text/markdown"
_TOLD = (
    "name",
    "region",
    "access_mode",
    "visibility",
    "listed",
    "paused",
    "paused_reason",
    "allowed_origins",
    "subdomain",
    "organization_id",
    "created_at",
    "updated_at",
)


class Resources(Extension):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._catalogue = Catalogue(registry)

    async def resources(self, ctx: Context) -> Sequence[types.Resource]:
        who = visitor(ctx)
        listed = [_guide_resource(guide) for guide in guides().values()]
        listed += [_app_resource(app) for app in await own_apps(self._registry, who)]
        if any(tool.name == _GUIDANCE_TOOL for tool in self._registry.visible_to(who.caller)):
            return [_guidance_resource(), *listed]
        return listed

    async def resource_templates(self, ctx: Context) -> Sequence[types.ResourceTemplate]:
        return [
            types.ResourceTemplate(
                uri_template=APP,
                name="app",
                title="An app",
                description="An app of yours: its state, its settings and the tools that work in it.",
                mime_type=_JSON,
            )
        ]

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | None:
        who, uri = visitor(ctx), params.uri
        if uri == GUIDANCE:
            text = await self._registry.call(_GUIDANCE_TOOL, {}, who.caller, who.door)
            return _whole(uri, _MARKDOWN, text)
        if uri.startswith(_GUIDES):
            return _read_guide(uri)
        if uri.startswith(_APPS):
            app = await self._app(who, uri.removeprefix(_APPS))
            return None if app is None else _whole(uri, _JSON, to_json(app).decode())
        return None

    async def _app(self, who: Visitor, app_id: str) -> Mapping[str, Any] | None:
        settings = await own_app(self._registry, who, app_id)
        if settings is None:
            return None
        status = await self._registry.call("apps_status", {"app_id": app_id}, who.caller, who.door)
        return {
            "app_id": app_id,
            "status": status["provisioning_status"],
            **{name: settings[name] for name in _TOLD},
            "api_base_url": f"{who.door.base_url}/v1/{app_id}",
            "tools": self._families(who),
        }

    def _families(self, who: Visitor) -> dict[str, dict[str, Any]]:
        """The tools of this connection that work in an app, by family."""
        families: dict[str, dict[str, Any]] = {}
        for tool in self._catalogue.offer(who).tools.values():
            if tool.app_parameter == "app_id":
                family = {"description": tool.toolset.description, "names": []}
                families.setdefault(tool.toolset.name, family)["names"].append(tool.name)
        return families


def _guidance_resource() -> types.Resource:
    return types.Resource(
        uri=GUIDANCE,
        name="llms.txt",
        title="How to use this server",
        description="Guidance for language models: first steps, patterns, errors, and every tool in one line.",
        mime_type=_MARKDOWN,
    )


def _guide_resource(guide: Guide) -> types.Resource:
    return types.Resource(
        uri=_GUIDES + guide.name,
        name=guide.name,
        title=guide.title,
        description=guide.description,
        mime_type=_MARKDOWN,
        size=len(guide.text.encode()),
    )


def _read_guide(uri: str) -> types.ReadResourceResult | None:
    """A page of the documentation, which anybody may read. Its links name others as `NAME.md`, so that is good, too."""
    try:
        guide = find_guide(uri.removeprefix(_GUIDES))
    except GuideNotFound:
        return None
    return _whole(uri, _MARKDOWN, guide.text)


def _app_resource(app: Mapping[str, Any]) -> types.Resource:
    return types.Resource(
        uri=_APPS + app["id"],
        name=app["name"],
        title=f"App {app['name']}",
        description=f"State, settings and tools of the app {app['name']} ({app['id']}) in the region {app['region']}.",
        mime_type=_JSON,
    )


def _whole(uri: str, mime_type: str, text: str) -> types.ReadResourceResult:
    # An app may change at any time, and each visitor is told what it may know: nothing is to be kept.
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)])
