"""Tools whose answers are content of one kind or another."""

import mcp_types as types

from baobab.mcp_server.extension import Context
from tests.e2e.profile.media import PICTURE, SOUND, embed_text
from tests.e2e.profile.toolbox import Toolbox, text_result

CONTENTS = Toolbox()
Call = types.CallToolRequestParams
Result = types.CallToolResult

_EVERY_KEYWORD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_IN_HEADER = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


@CONTENTS.tool("Answers a text.")
async def test_simple_text(ctx: Context, params: Call) -> Result:
    return text_result("This is a simple text response for testing.")


@CONTENTS.tool("Answers a picture.")
async def test_image_content(ctx: Context, params: Call) -> Result:
    return Result(content=[PICTURE])


@CONTENTS.tool("Answers a sound.")
async def test_audio_content(ctx: Context, params: Call) -> Result:
    return Result(content=[SOUND])


@CONTENTS.tool("Answers a resource.")
async def test_embedded_resource(ctx: Context, params: Call) -> Result:
    return Result(content=[embed_text("test://embedded-resource", "This is an embedded resource content.")])


@CONTENTS.tool("Answers a text, a picture and a resource.")
async def test_multiple_content_types(ctx: Context, params: Call) -> Result:
    resource = embed_text("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return Result(content=[types.TextContent(text="Multiple content types test:"), PICTURE, resource])


@CONTENTS.tool("Always fails.")
async def test_error_handling(ctx: Context, params: Call) -> Result:
    return text_result("This tool intentionally returns an error for testing", is_error=True)


@CONTENTS.tool("Has a schema with keywords of JSON Schema 2020-12.", _EVERY_KEYWORD)
async def json_schema_2020_12_tool(ctx: Context, params: Call) -> Result:
    return text_result("Taken.")


@CONTENTS.tool("Takes an argument that travels in a header too.", _IN_HEADER)
async def test_custom_header(ctx: Context, params: Call) -> Result:
    return text_result(f"Region: {(params.arguments or {}).get('region')}")
