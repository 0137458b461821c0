"""Resources: a text, some bytes, one that is watched, and a template."""

import mcp_types as types

from baobab.mcp_server.extension import Context, Extension
from baobab.mcp_server.protocol import FRESH_MS
from tests.e2e.profile.media import PNG

_TEXT = "text/plain"
_RESOURCES = (
    types.Resource(uri="test://static-text", name="static-text", description="A text.", mime_type=_TEXT),
    types.Resource(uri="test://static-binary", name="static-binary", description="Bytes.", mime_type="image/png"),
    types.Resource(uri="test://watched-resource", name="watched", description="It is watched.", mime_type=_TEXT),
)
_TEMPLATE = types.ResourceTemplate(
    uri_template="test://template/{id}/data", name="template", description="By id.", mime_type="application/json"
)


class Resources(Extension):
    async def resources(self, ctx: Context) -> tuple[types.Resource, ...]:
        return _RESOURCES

    async def resource_templates(self, ctx: Context) -> tuple[types.ResourceTemplate, ...]:
        return (_TEMPLATE,)

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | None:
        match str(params.uri).removeprefix("test://").split("/"):
            case ["static-text"]:
                return _read_text(params.uri, "This is the content of the static text resource.")
            case ["static-binary"]:
                return _build_result(types.BlobResourceContents(uri=params.uri, mime_type="image/png", blob=PNG))
            case ["watched-resource"]:
                return _read_text(params.uri, "Watched resource content")
            case ["template", name, "data"]:
                text = f'{{"id":"{name}","templateTest":true,"data":"Data for ID: {name}"}}'
                return _read_text(params.uri, text, "application/json")
        return None


def _read_text(uri: str, text: str, mime_type: str = _TEXT) -> types.ReadResourceResult:
    return _build_result(types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _build_result(content: types.TextResourceContents | types.BlobResourceContents) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[content], ttl_ms=FRESH_MS, cache_scope="private")
