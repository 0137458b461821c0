"""Renders refusals of the MCP endpoint: JSON-RPC errors with an HTTP status, each with a code and a remedy."""

from collections.abc import MutableMapping, Sequence
from typing import Any

import mcp_types as types
from pydantic_core import from_json, to_json

from baobab.http.answer import Headers
from baobab.mcp_server.remedies import add_remedy
from baobab.mcp_server.results import render_error_data
from baobab.tools.core.envelopes import Envelope
from baobab.tools.core.errors import BaobabError

_UNEXPLAINED = {
    405: (
        "This path does not support this method.",
        "METHOD_NOT_ALLOWED",
        "Send messages by POST.",
    ),
    406: (
        "The request does not accept the media types of the answer.",
        "NOT_ACCEPTABLE",
        "Send `Accept: application/json, text/event-stream`.",
    ),
    415: (
        "The body is not declared as JSON.",
        "UNSUPPORTED_MEDIA_TYPE",
        "Send `Content-Type: application/json`.",
    ),
}

# The SDK's own messages for a body that is not a message hold parser output, which repeats what was sent.
_PARSERS = {
    types.PARSE_ERROR: (types.PARSE_ERROR, "The body is not JSON."),
    types.INVALID_PARAMS: (types.INVALID_REQUEST, "The body is not a single message of this protocol."),
}

Message = MutableMapping[str, Any]


async def refuse(
    respond: Any, status: int, error: BaobabError, headers: Headers | None = None, *, request_id: Any = None
) -> None:
    """Answers with an error before a message is handled. request_id: the id of the message, if it is known already."""
    await _send(respond, status, _render_refusal(error, request_id), headers or [])


def _render_refusal(error: BaobabError, request_id: Any) -> dict[str, Any]:
    data = render_error_data(error)
    payload = {"code": types.INVALID_REQUEST, "message": data.pop("message"), "data": data}
    return {"jsonrpc": "2.0", "id": request_id, "error": payload}


class JsonRpcEnvelope(Envelope):
    """Errors of a request whose message is not read, in the form in which clients of MCP show them to a person."""

    name = "jsonrpc"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        return _render_refusal(error, None)


async def refuse_version(
    respond: Any, request_id: Any, requested_version: str, supported_versions: Sequence[str]
) -> None:
    """Answers a message with an unsupported protocol version, before anything else is read."""
    code = types.UNSUPPORTED_PROTOCOL_VERSION
    data = add_remedy(code, {"supported": list(supported_versions), "requested": requested_version})
    payload = {
        "code": code,
        "message": f"This server does not support the protocol version {to_json(requested_version).decode()}.",
        "data": data,
    }
    await _send(respond, 400, {"jsonrpc": "2.0", "id": request_id, "error": payload}, [])


class RefusalExplainer:
    """A `send` that adds code and remedy to refusals of the SDK; everything else passes unchanged."""

    def __init__(self, respond: Any) -> None:
        self._respond = respond
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
        elif self._start is None:
            await self._respond(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._explain(self._start)

    async def _explain(self, start: Message) -> None:
        headers = [pair for pair in start["headers"] if pair[0].lower() not in (b"content-type", b"content-length")]
        await _send(self._respond, start["status"], _explain_refusal(start["status"], self._body), headers)


def _explain_refusal(status: int, body: bytes) -> dict[str, Any]:
    try:
        answer = from_json(body) if body else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("error"), dict):
        answer = {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": types.INVALID_REQUEST, "message": "The request was refused."},
        }
    error = answer["error"]
    if status == 400 and answer.get("id") is None and error["code"] in _PARSERS:
        error["code"], error["message"] = _PARSERS[error["code"]]
    if status in _UNEXPLAINED and "data" not in error:
        message, code, remedy = _UNEXPLAINED[status]
        answer["error"] = {"code": error["code"], "message": message, "data": {"code": code, "remediation": remedy}}
    else:
        error["data"] = add_remedy(error["code"], error.get("data"))
    return answer


async def _send(respond: Any, status: int, payload: dict[str, Any], headers: Headers) -> None:
    body = to_json(payload)
    headers = [*headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await respond({"type": "http.response.start", "status": status, "headers": headers})
    await respond({"type": "http.response.body", "body": body})
