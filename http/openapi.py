"""Builds the OpenAPI document from the registry, so that it describes exactly what runs."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from baobab.http.further_names import add_to_schema
from baobab.tools.core.binding import RestBinding
from baobab.tools.core.call import Tool
from baobab.tools.core.envelopes import PLAN_ENVELOPE, Envelope, envelope_for
from baobab.tools.core.errors import BaobabError, RateLimited, name_operations_within
from baobab.tools.core.registry import Registry
from baobab.tools.core.tool_errors import errors_of

Schema = dict[str, Any]

_BEARER = "bearer"
_ANON_KEY = "anonKey"
_TITLE = "Baobab"
_DESCRIPTION = (
    "A backend for AI agents and the apps around them. Every operation is one tool: its operationId is the name of the "
    "tool that MCP clients and agents call. A few tools are not offered to models; docs/tools.md says which."
)
_MEANINGS = {
    101: "The WebSocket is open.",
    200: "Done.",
    201: "Created.",
    202: "Accepted.",
    204: "Done; no body.",
    307: "It is at the address in `Location`.",
    503: "Not ready.",
}
_RAW = {"type": "boolean", "default": False, "description": "Answer the value itself, and not an object that has it."}
_REQUEST_ID = {"description": "The id of this request in logs.", "schema": {"type": "string"}}


def build_document(registry: Registry, version: str, base_url: str) -> Schema:
    paths: dict[str, Schema] = {}
    envelopes: dict[str, Envelope] = {PLAN_ENVELOPE.name: PLAN_ENVELOPE}
    for tool in registry.tools.values():
        if tool.rest is None:
            continue
        envelope = tool.toolset.envelope
        envelopes[envelope.name] = envelope
        path = re.sub(r"\{(\w+):path\}", r"{\1}", tool.rest.path)
        paths.setdefault(path, {})[tool.rest.method.lower()] = _build_operation(tool, tool.rest)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": _TITLE,
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_url}],
        "tags": [{"name": t.name, "description": t.description} for t in registry.toolsets],
        "paths": {**paths, **_build_mcp_path()},
        "components": {
            "schemas": {name: envelope.schema() for name, envelope in sorted(envelopes.items())},
            "securitySchemes": {
                _BEARER: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`bb_sk_...`), a platform token, or a user's token of the app.",
                },
                _ANON_KEY: {
                    "type": "apiKey",
                    "in": "header",
                    "name": "apikey",
                    "description": "The app's public anon key; an anonymous caller may send it.",
                },
            },
        },
    }
    document_with_names: Schema = name_operations_within(document, registry.name_by_route)
    return document_with_names


def _build_operation(tool: Tool, rest: RestBinding) -> Schema:
    properties = tool.input_schema["properties"]
    required_arguments = set(tool.input_schema.get("required", ()))
    operation: Schema = {
        "operationId": tool.name,
        "summary": tool.summary,
        "description": f"{tool.description}\n\nWho: {tool.access.description}{_say_further_names(rest)}",
        "tags": [tool.toolset.name],
        "security": _build_security(tool),
        "responses": _build_responses(tool, rest),
        "x-effect": tool.effect,
    }
    parameters = [_build_parameter(name, "path", properties[name], required=True) for name in rest.path_parameters]
    parameters += [
        _build_parameter(n, "query", properties[n], required=n in required_arguments) for n in rest.query_parameters
    ]
    if rest.alone is not None:
        parameters.append(_build_parameter("raw", "query", _RAW, required=False))
    if rest.further_query is not None:
        further_parameter = _build_parameter(
            rest.further_query, "query", properties[rest.further_query], required=False
        )
        parameters.append({**further_parameter, "style": "form", "explode": True})
    parameters += [
        {**_build_parameter(n, "header", properties[n], required=False), "name": h}
        for n, h in rest.from_headers.items()
    ]
    if parameters:
        operation["parameters"] = parameters
    if rest.raw_body is not None:
        operation["requestBody"] = _build_raw_body(properties[rest.raw_body])
    elif rest.body_parameters:
        operation["requestBody"] = _build_body(tool, rest, required_arguments)
    return operation


def _say_further_names(rest: RestBinding) -> str:
    """Returns the sentence about fields of the body that may have other names; empty if there are none."""
    names = [
        f"`{source}` may be called `{name}`"
        for name, source in rest.further_names.items()
        if source in rest.body_parameters and name not in rest.body_parameters
    ]
    return f"\n\nIn the body, {', and '.join(names)}." if names else ""


def _build_security(tool: Tool) -> list[Schema]:
    if not tool.access.credential:
        return []
    return [{_BEARER: []}, *([{_ANON_KEY: []}, {}] if tool.access.anonymous else [])]


def _build_parameter(name: str, place: str, schema: Schema, *, required: bool) -> Schema:
    value_schema = {k: v for k, v in schema.items() if k not in ("description", "examples")}
    parameter: Schema = {"name": name, "in": place, "required": required, "schema": value_schema}
    if "description" in schema:
        parameter["description"] = schema["description"]
    if "examples" in schema:
        parameter["example"] = schema["examples"][0]
    if schema.get("type") == "array":
        parameter |= {"style": "form", "explode": False}
    return parameter


def _build_body(tool: Tool, rest: RestBinding, required_arguments: set[str]) -> Schema:
    if rest.whole_body is not None:
        whole: Schema = {"schema": tool.input_schema["properties"][rest.whole_body]}
        if rest.whole_body in tool.examples:
            whole["example"] = tool.examples[rest.whole_body]
        return {"required": rest.whole_body in required_arguments, "content": {"application/json": whole}}
    schema: Schema = {
        "type": "object",
        "properties": {name: tool.input_schema["properties"][name] for name in rest.body_parameters},
        "additionalProperties": False,
    }
    required_names = [name for name in rest.body_parameters if name in required_arguments]
    if required_names:
        schema["required"] = required_names
    content: Schema = {"schema": schema}
    # A tool's example holds all its arguments; those of the path and the query are left out of the body.
    example = {name: value for name, value in tool.examples.items() if name in rest.body_parameters}
    if example:
        content["example"] = example
    return {"required": bool(required_names), "content": {"application/json": content}}


def _build_raw_body(schema: Schema) -> Schema:
    """Describes a body of any type."""
    return {"required": True, "content": {"application/octet-stream": {"schema": schema}}}


def _build_responses(tool: Tool, rest: RestBinding) -> Schema:
    responses: Schema = {}
    for status in rest.statuses:
        meaning = _MEANINGS.get(status) or f"{HTTPStatus(status).phrase}."
        answer: Schema = {"description": meaning, "headers": {"X-Request-Id": _REQUEST_ID}}
        # A site leads elsewhere without a word.
        is_empty = status in (101, 204, 304) or ((rest.site or rest.off_platform) and 300 <= status < 400)
        if not is_empty and tool.output_schema is not None:
            media = rest.media_type.partition(";")[0]
            answer["content"] = {media: {"schema": _build_answer(tool.output_schema, rest)}}
        responses[str(status)] = answer
    by_status: dict[int, list[type[BaobabError]]] = {}
    for kind in errors_of(tool):
        by_status.setdefault(kind.status, []).append(kind)
    for status, kinds in sorted(by_status.items()):
        if str(status) not in responses:
            responses[str(status)] = _build_error(tool.toolset.envelope, kinds)
    return responses


def _build_answer(schema: Schema, rest: RestBinding) -> Schema:
    schema = add_to_schema(schema, rest.further_names)
    if rest.alone is None:
        return schema
    return {"anyOf": [schema, {**schema["properties"][rest.alone], "description": "With `raw=1`, the value itself."}]}


def _build_error(envelope: Envelope, kinds: Sequence[type[BaobabError]]) -> Schema:
    pairs = [(envelope_for(envelope, kind), kind) for kind in kinds]
    shapes = [{"$ref": f"#/components/schemas/{name}"} for name in sorted({words.name for words, _ in pairs})]
    # One code may have several causes, each with its own remedy.
    causes = sorted({(words.code(kind), kind.summary, kind.remediation) for words, kind in pairs})
    answer: Schema = {
        "description": ", ".join(f"`{code}`" for code in dict.fromkeys(code for code, *_ in causes)),
        "content": {"application/json": {"schema": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}}},
        "x-errors": [
            {"code": code, "message": message, "remediation": remediation} for code, message, remediation in causes
        ],
    }
    if any(issubclass(kind, RateLimited) for kind in kinds):
        answer["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return answer


def _build_mcp_path() -> Schema:
    """Describes /mcp, which has a protocol of its own, so that the document says where it is."""
    operation: Schema = {
        "tags": ["system"],
        "security": [{_BEARER: []}],
        "responses": {
            "200": {"description": "JSON-RPC, or a stream of it."},
            "401": {"description": "There is no credential, or it is not valid."},
            "404": {"description": "Mcp-Session-Id is not a session of this credential."},
        },
    }
    summaries = {"get": "Stream of changes", "post": "Send MCP messages", "delete": "End a session"}
    responses: dict[str, Schema] = {
        "get": {
            "405": {"description": "This protocol version has no such stream, or too many streams are open."},
            "406": {"description": "The request does not accept `text/event-stream`."},
        },
        "post": {
            "202": {"description": "A notification, which has no answer."},
            "400": {
                "description": "The body is not a message of this protocol, or a parameter of the address is not valid."
            },
            "406": {"description": "The request does not accept JSON and `text/event-stream`."},
            "413": {"description": "The message is larger than 4 MiB."},
            "415": {"description": "The body is not declared as JSON."},
        },
        "delete": {"204": {"description": "The session has ended. The server stores nothing of it."}},
    }
    common: Schema = operation.pop("responses")
    return {
        "/mcp": {
            method: {
                "operationId": f"mcp_{method}",
                "summary": f"{summary} (Model Context Protocol).",
                **operation,
                "responses": _without_ok(common) | responses[method]
                if method == "delete"
                else common | responses[method],
            }
            for method, summary in summaries.items()
        }
    }


def _without_ok(responses: Schema) -> Schema:
    return {status: answer for status, answer in responses.items() if status != "200"}
