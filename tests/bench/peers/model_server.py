"""A provider of models that costs next to nothing: the bytes of its answers are made beforehand.

A request with `"stream": true` is answered with as many events as its `max_tokens` says, one by one, `_PACE` apart, as
a model makes them. As OpenAI does, each has `"usage": null` where the usage is asked for, and the last but one has it.
Streams of Anthropic's messages and of Google's Gemini are answered in their own words.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import uvloop

_PACE = 0.002
_ID = "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG"
_USAGE = {
    "prompt_tokens": 24, "completion_tokens": 9, "total_tokens": 33,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0},
}  # fmt: skip
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": *true')
_GOOGLES = b":streamGenerateContent"
_TOKENS = re.compile(rb'"(?:max_tokens|max_completion_tokens|max_output_tokens|maxOutputTokens)": *(\d+)')


def _build_message(**choice: object) -> dict[str, object]:
    kind = "chat.completion" if "message" in choice else "chat.completion.chunk"
    common_fields = {"id": _ID, "object": kind, "created": 1741569952, "model": "gpt-4o-mini-2024-07-18"}
    choices = [{"index": 0, **choice, "logprobs": None}] if choice else []
    return {**common_fields, "service_tier": "default", "system_fingerprint": "fp_06737a9306", "choices": choices}


def _encode_json(payload: object) -> bytes:
    return json.dumps(payload, separators=(",", ":")).encode()


def _response_head(kind: bytes, further: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n" % (kind, further)


def _encode_event(payload: bytes) -> bytes:
    event = b"data: " + payload + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


_ANSWER = _encode_json(
    {
        **_build_message(
            message={"role": "assistant", "content": "Hello! How may I assist you today?"}, finish_reason="stop"
        ),
        "usage": _USAGE,
    }
)
_WHOLE = _response_head(b"application/json", b"content-length: %d" % len(_ANSWER)) + _ANSWER
_BEGIN = _response_head(b"text/event-stream; charset=utf-8", b"transfer-encoding: chunked")
_WORD = {**_build_message(delta={"content": " tree"}, finish_reason=None), "usage": None}
_STOP = {**_build_message(delta={}, finish_reason="stop"), "usage": None}
_TOKEN = _encode_event(_encode_json(_WORD))
_TALLY = {**_build_message(), "usage": _USAGE}
_END = b"".join((*map(_encode_event, (_encode_json(_STOP), _encode_json(_TALLY), b"[DONE]")), b"0\r\n\r\n"))


def _encode_named_event(**fields: object) -> bytes:
    event = b"event: %b\ndata: %b\n\n" % (str(fields["type"]).encode(), _encode_json(fields))
    return b"%x\r\n%b\r\n" % (len(event), event)


class _Stream(NamedTuple):
    """What a stream begins with, what it has for each token, and what it ends with."""

    begin: bytes
    token: bytes
    end: bytes


_COUNTED = {"input_tokens": 24, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 9}
_CLAUDES: dict[str, Any] = {
    "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "model": "claude-haiku-4-5-20251001",
    "content": [], "stop_reason": None, "stop_sequence": None, "usage": _COUNTED,
}  # fmt: skip
_MESSAGES = _Stream(
    _encode_named_event(type="message_start", message=_CLAUDES)
    + _encode_named_event(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
    _encode_named_event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": " tree"}),
    _encode_named_event(type="content_block_stop", index=0)
    + _encode_named_event(
        type="message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=_COUNTED
    )
    + _encode_named_event(type="message_stop")
    + b"0\r\n\r\n",
)


def _gemini_event(**candidate: object) -> bytes:
    usage = {"promptTokenCount": 24, "candidatesTokenCount": 9, "totalTokenCount": 33}
    content = {"parts": [{"text": " tree"}], "role": "model"}
    common_fields = {
        "usageMetadata": usage,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
    }
    return _encode_event(_encode_json({"candidates": [{"content": content, **candidate, "index": 0}], **common_fields}))


_GEMINI = _Stream(b"", _gemini_event(), _gemini_event(finishReason="STOP") + b"0\r\n\r\n")
_CHAT = _Stream(b"", _TOKEN, _END)


class _Connection(asyncio.Protocol):
    """One request at a time, as clients with a pool of connections send them."""

    def __init__(self) -> None:
        self._buffer = b""
        self._pieces: Iterator[bytes] = iter(())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces = iter(())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or len(body) < int(length[1] if length else 0):
            return
        self._buffer = b""
        request_line = head.partition(b"\r\n")[0]
        if _STREAM.search(body) is None and _GOOGLES not in request_line:
            self._write(_WHOLE)
            return
        tokens = _TOKENS.search(body)
        assert tokens is not None
        stream = _GEMINI if _GOOGLES in request_line else _MESSAGES if b"/messages" in request_line else _CHAT
        self._write(_BEGIN + stream.begin)
        self._pieces = iter([stream.token] * int(tokens[1]) + [stream.end])
        self._send_next()

    def _send_next(self) -> None:
        piece = next(self._pieces, None)
        if piece is not None:
            self._write(piece)
            asyncio.get_running_loop().call_later(_PACE, self._send_next)

    def _write(self, piece: bytes) -> None:
        # uvloop's is one by its methods only.
        self._transport.write(piece)  # type: ignore[attr-defined]


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
