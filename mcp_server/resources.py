"""Resources that a model can read: the instructions of this server, its documentation, and each app of the client."""

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from pydantic_core import to_json

from baobab.mcp_server.apps import get_own_app, list_own_apps
from baobab.mcp_server.catalogue import Catalogue
from baobab.mcp_server.extension import Context, Extension
from baobab.mcp_server.mcp_client import McpClient, get_client
from baobab.mcp_server.results import LEFT_OUT
from baobab.mcp_server.shortening import MOST_CHARACTERS, Shortener, read_json
from baobab.tools.core.auth.user_tools import is_user
from baobab.tools.core.binding import SHORTENED
from baobab.tools.core.guides import Guide, GuideNotFound, find_guide, guides
from baobab.tools.core.registry import Registry

GUIDANCE = "baobab://llms.txt"
APP = "baobab://apps/{app_id}"
SCHEMA = f"{APP}/schema"

_GUIDANCE_TOOL = "system_llms_txt"
_SCHEMA_TOOL = "schema_get"
_GUIDES = "baobab://docs/"
_APPS = APP.removesuffix("{app_id}")
_OF_SCHEMA = "/schema"
_JSON = "application/json"
_MARKDOWN = "text/markdown"
_APP_FIELDS = (
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
        client = get_client(ctx)
        if is_user(client.caller):
            # The pages tell how to build with Baobab, and the apps are those that the caller runs.
            return []
        resources = [_guide_resource(guide) for guide in guides().values()]
        resources += [_app_resource(app) for app in await list_own_apps(self._registry, client)]
        if any(tool.name == _GUIDANCE_TOOL for tool in self._registry.visible_to(client.caller, client.role)):
            return [_guidance_resource(), *resources]
        return resources

    async def resource_templates(self, ctx: Context) -> Sequence[types.ResourceTemplate]:
        if is_user(get_client(ctx).caller):
            return []
        return [
            types.ResourceTemplate(
                uri_template=APP,
                name="app",
                title="An app",
                description="An app of yours: its state, its settings and the tools that work in it.",
                mime_type=_JSON,
            ),
            types.ResourceTemplate(
                uri_template=SCHEMA,
                name="schema",
                title="The tables of an app",
                description="Every table of an app of yours, with its columns, references and indexes.",
                mime_type=_JSON,
            ),
        ]

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | None:
        client, uri = get_client(ctx), params.uri
        if is_user(client.caller):
            return None
        if uri == GUIDANCE:
            text = await self._registry.call(_GUIDANCE_TOOL, {}, client.caller, client.context)
            return _build_result(uri, _MARKDOWN, text)
        if uri.startswith(_GUIDES):
            return _read_guide(uri)
        if uri.startswith(_APPS) and uri.endswith(_OF_SCHEMA):
            schema = await self._get_schema(client, uri.removeprefix(_APPS).removesuffix(_OF_SCHEMA))
            return None if schema is None else _build_result(uri, _JSON, _fit(schema, client, _SCHEMA_TOOL))
        if uri.startswith(_APPS):
            app = await self._get_app(client, uri.removeprefix(_APPS))
            return None if app is None else _build_result(uri, _JSON, _fit(app, client, "config_get"))
        return None

    async def _get_app(self, client: McpClient, app_id: str) -> Mapping[str, Any] | None:
        settings = await get_own_app(self._registry, client, app_id)
        if settings is None:
            return None
        status = await self._registry.call("apps_status", {"app_id": app_id}, client.caller, client.context)
        return {
            "app_id": app_id,
            "status": status["provisioning_status"],
            **{name: settings[name] for name in _APP_FIELDS},
            "api_base_url": f"{client.context.base_url}/v1/{app_id}",
            "tools": self._group_families(client),
        }

    async def _get_schema(self, client: McpClient, app_id: str) -> Any:
        if await get_own_app(self._registry, client, app_id) is None:
            return None
        answer = await self._registry.call(_SCHEMA_TOOL, {"app_id": app_id}, client.caller, client.context)
        return answer["schema"]

    def _group_families(self, client: McpClient) -> dict[str, dict[str, Any]]:
        """Returns the tools of this connection that work in an app, by toolset."""
        families: dict[str, dict[str, Any]] = {}
        for tool in self._catalogue.get_offer(client).tools.values():
            if tool.app_parameter == "app_id":
                family = {"description": tool.toolset.description, "names": []}
                families.setdefault(tool.toolset.name, family)["names"].append(tool.name)
        return families


def _fit(value: Any, client: McpClient, reader: str) -> str:
    """Renders an object as JSON that fits into a context. reader: the tool that reads on what is left out."""
    shortener = Shortener(client.view.max_characters, reads_on=False, is_list=False)
    shown_value = shortener.shorten(read_json(to_json(value)))
    if shortener.left_out or shortener.cut_count:
        note = f"This is too long to show whole. {reader} reads all of it, part by part."
        shown_value = {SHORTENED: note, LEFT_OUT: shortener.left_out, **shown_value}
    return to_json(shown_value).decode()


def _guidance_resource() -> types.Resource:
    return types.Resource(
        uri=GUIDANCE,
        name="llms.txt",
        title="How to use this server",
        description="Guidance for language models: first steps, patterns, rights, limits and errors.",
        mime_type=_MARKDOWN,
    )


def _guide_resource(guide: Guide) -> types.Resource:
    return types.Resource(
        uri=_GUIDES + guide.name,
        name=guide.name,
        title=guide.title,
        description=guide.description,
        mime_type=_MARKDOWN,
        size=len(_shorten(guide).encode()),
    )


def _read_guide(uri: str) -> types.ReadResourceResult | None:
    """Returns a page of the documentation, which is public, or a section: `NAME/SECTION`. Links in the pages use
    `NAME.md`, so that works too.
    """
    name, _, section = uri.removeprefix(_GUIDES).partition("/")
    try:
        guide = find_guide(name)
        text = _read_section(guide, section) if section else _shorten(guide)
    except GuideNotFound:
        return None
    return _build_result(uri, _MARKDOWN, text)


def _read_section(guide: Guide, section: str) -> str:
    text, following = guide.section(section)
    return text if following is None else f"{text}\nThe page goes on at {_GUIDES}{guide.name}/{following}\n"


def _shorten(guide: Guide) -> str:
    """Returns a page; of one that would fill a context, its beginning and the addresses of its sections."""
    if len(guide.text) <= MOST_CHARACTERS:
        return guide.text
    sections = [f"- {_GUIDES}{guide.name}/{part.slug}" for part in guide.parts if part.level <= 2]
    return f"{guide.parts[0].text}\nThis page is long. Read its sections:\n\n" + "\n".join(sections[1:]) + "\n"


def _app_resource(app: Mapping[str, Any]) -> types.Resource:
    return types.Resource(
        uri=_APPS + app["id"],
        name=app["name"],
        title=f"App {app['name']}",
        description=f"State, settings and tools of the app {app['name']} ({app['id']}) in the region {app['region']}.",
        mime_type=_JSON,
    )


def _build_result(uri: str, mime_type: str, text: str) -> types.ReadResourceResult:
    # Without caching: an app may change at any time, and the answer depends on the client.
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)])
