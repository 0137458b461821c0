"""A provider of models on loopback, which behaves as it is told by the name of the model.

    async with upstream() as fake:
        ...  # fake.url is http://127.0.0.1:PORT; ask for the model "slow-tokens:0.01" or send the header x-upstream
        assert fake.requests[-1].json["model"] == "slow-tokens:0.01"

It speaks OpenAI's `/v1/chat/completions`, `/v1/responses`, `/v1/embeddings` and `/v1/models`, Anthropic's
`/v1/messages` and `/v1/messages/count_tokens`, and the streams of Google's. What stands before the last `/` of a
model's name is of no matter. Any other name is answered normally.

    tools[:N]            call the first tool of the request N times (1); after its results answer normally
    cut-off              the same, cut off by the limit of tokens
    long:N               an answer of N tokens
    huge[:BYTES]         an answer of so many bytes (8 MiB)
    echo                 answer what was received, as JSON text
    cached:N             N of the prompt's tokens were cached
    written:N            N of the prompt's tokens were written to the cache, half of them for an hour
    thoughts             think before the answer, in a chat completion
    no-usage             tell no usage
    400 ... 599[:S]      this status; 429 and 503 with `Retry-After: S` (1)
    context              400 context_length_exceeded
    flaky[:N]            500 for the first N requests (1) for this model, then normally
    html                 502 with a page in place of JSON
    redirect             307 to another host
    slow-first[:S]       S seconds (0.2) before the first byte
    slow-tokens[:S]      S seconds (0.02) before each event of a stream
    drop-first           close the connection instead of answering
    drop[:N]             close it after N events (2), or after half of an answer in one piece
    stop[:N]             a stream that ends after N events (2), as if they were all
    error-frame[:N]      after N events (2) an error in the stream, and its end
    error-beside[:N]     the same beside a choice, as some resellers say it
    error-body           200, and an error in place of an answer
    shapeless            200, and JSON that is no answer
    malformed-json       half of the JSON, as if it were all
    malformed-sse        an event in the stream that is no JSON
    no-done              a stream that ends without its last event; a chat completion has said why it ends
    comments             comments, other fields and CRLF between the events
    split                the stream in pieces of seven bytes
    obedient             do what the user's last words say (`upstream_obedient.py`)
    said[:NAME]          what `fake.canned_answers` holds by this name, whatever it is
    calls[:NAME]         the same, or what is held by `NAME whole` if no stream is asked for; after the results of its
                         calls an ordinary answer

`python -m tests.runtime.gateway.upstream --port 0` prints the port and keeps no requests; with `--behaviour obedient`
all its models behave so, whatever they are called.
"""

import argparse
import asyncio
import base64
import contextlib
import hashlib
import json
import re
from array import array
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import LooseHeaders
from multidict import CIMultiDictProxy

from tests.runtime.gateway import upstream_wires
from tests.runtime.gateway.upstream_media import MediaMaker, fields_of, is_media, model_of
from tests.runtime.gateway.upstream_obedient import build_script, find_refusal
from tests.runtime.gateway.upstream_wires import CHAT, GOOGLE, MESSAGES, PROMPT_TOKENS, RESPONSES, Script, Wire

HELLO = Script(("Hello", " from", " the", " upstream", ",", " Grüße", "!"))
ARGUMENTS = '{"city": "Paris"}'
MODELS = ("gpt-4o-mini", "text-embedding-3-small")
_WIRES = {"/chat/completions": CHAT, "/responses": RESPONSES, "/messages": MESSAGES}
_COUNT = "/count_tokens"
_GOOGLES = re.compile(r"/models/(.+):streamGenerateContent$")
_HUGE = 8 * 2**20
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Received:
    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Behaviour:
    name: str
    argument: str

    def number(self, otherwise: float) -> float:
        return float(self.argument or otherwise)


@dataclass(frozen=True, slots=True)
class CannedAnswer:
    body: bytes = b"{}"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


@dataclass
class Upstream:
    """requests: what was received, oldest first. broken_off: answers whose reader went away before their end.

    said: the answers of models that are called so. behaviour: how all models behave, in place of what their names say.
    """

    keep: int = 1000
    behaviour: str = ""
    url: str = ""
    broken_off: int = 0
    canned_answers: dict[str, CannedAnswer] = field(default_factory=dict)
    requests: deque[Received] = field(default_factory=deque)
    media: MediaMaker = field(default_factory=MediaMaker)
    _request_counts: Counter[str] = field(default_factory=Counter)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if self.keep:
            self.requests.append(Received(request.method, request.path_qs, request.headers, body))
            if len(self.requests) > self.keep:
                self.requests.popleft()
        if is_media(request.path):
            return await self._media(request, body)
        path = request.path.removeprefix("/v1")
        if path == "/models":
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "upstream"} for name in MODELS]
            return web.json_response({"object": "list", "data": models})
        wire = _WIRES.get(path.removesuffix(_COUNT))
        google = _GOOGLES.search(path)
        wire = GOOGLE if google else wire
        if request.method != "POST" or (wire is None and path != "/embeddings"):
            return _error_response(CHAT, 404, "not_found", f"There is nothing at {request.path}.")
        fields = json.loads(body)
        if google:
            fields |= {"model": google[1], "stream": True}
        model = str(fields.get("model"))
        self._request_counts[model] += 1
        behaviour_text = request.headers.get("x-upstream") or self.behaviour or model.rpartition("/")[2]
        name, _, argument = behaviour_text.partition(":")
        try:
            return await self._behave(request, wire, fields, Behaviour(name, argument))
        except asyncio.CancelledError:
            self.broken_off += 1
            raise

    async def _media(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        fields = fields_of(request.headers.get("content-type", ""), body)
        model = model_of(request.path, fields)
        self._request_counts[model] += 1
        name, _, argument = model.rpartition("/")[2].partition(":")
        behaviour = Behaviour(name, argument)
        try:
            failure = await self._fail(request, CHAT, model, behaviour) if request.method == "POST" else None
            answer = failure or self.media.answer(request.method, request.path, fields, self.url, name)
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        if answer is None:
            return _error_response(CHAT, 404, "not_found", f"There is nothing at {request.path}.")
        if name == "shapeless":
            return web.json_response({"candidates": "The upstream has none."})
        if name == "malformed-json" and isinstance(answer, web.Response) and isinstance(answer.body, bytes):
            return await _send_whole(request, answer.body, behaviour)
        return answer

    async def _behave(
        self, request: web.BaseRequest, wire: Wire | None, fields: Any, behaviour: Behaviour
    ) -> web.StreamResponse:
        if behaviour.name == "calls" and not _has_results(fields):
            words = behaviour.argument if fields.get("stream") else f"{behaviour.argument} whole"
            behaviour = Behaviour("said", words)
        failure = await self._fail(request, wire or CHAT, str(fields["model"]), behaviour)
        if behaviour.name == "obedient" and wire and (refusal := find_refusal(wire, fields)):
            failure = web.json_response(refusal, status=400)
        if failure is not None:
            return failure
        if behaviour.name == "error-body":
            return _error_response(wire or CHAT, 200, "upstream_200", "The upstream failed after all.")
        if behaviour.name == "shapeless":
            return web.json_response({"choices": "The upstream has none.", "data": 1})
        if wire is None or request.path.endswith(_COUNT):
            return web.json_response({"input_tokens": PROMPT_TOKENS} if wire else _build_embeddings(fields))
        script = _build_script(request, fields, behaviour)
        if fields.get("stream"):
            include = (fields.get("stream_options") or {}).get("include_usage") is True
            return await _send_stream(request, wire, wire.frames(str(fields["model"]), script, include), behaviour)
        return await _send_whole(request, wire.whole(str(fields["model"]), script), behaviour)

    async def _fail(
        self, request: web.BaseRequest, wire: Wire, model: str, behaviour: Behaviour
    ) -> web.StreamResponse | None:
        """The answer of those that answer nothing else."""
        name = behaviour.name
        if name == "drop-first":
            raise _drop_connection(request)
        if name == "said":
            canned_answer = self.canned_answers[behaviour.argument]
            return web.Response(status=canned_answer.status, body=canned_answer.body, headers=canned_answer.headers)
        if name == "slow-first":
            await asyncio.sleep(behaviour.number(0.2))
        if name == "flaky" and self._request_counts[model] <= behaviour.number(1):
            name = "500"
        if name.isdigit() and 400 <= int(name) <= 599:
            headers = {"retry-after": behaviour.argument or "1"} if name in {"429", "503"} else {}
            return _error_response(wire, int(name), f"upstream_{name}", f"The upstream says {name}.", headers)
        if name == "context":
            message = (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
            )
            # By its words the other vendor's, who has no code for it.
            message = "prompt is too long: 9000 tokens > 8192 maximum" if wire is MESSAGES else message
            return _error_response(wire, 400, "context_length_exceeded", message)
        return _proxy_response(name)


@contextlib.asynccontextmanager
async def start_upstream(port: int = 0, *, keep: int = 1000, behaviour: str = "") -> AsyncIterator[Upstream]:
    """keep: how many requests to remember. behaviour: how all models behave, in place of what their names say."""
    fake = Upstream(keep, behaviour)
    # A reader who goes away ends the handler, as it ends the work of a real provider.
    server = web.Server(fake.handle, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield fake
    finally:
        await runner.cleanup()


def _build_script(request: web.BaseRequest, fields: Any, behaviour: Behaviour) -> Script:
    match behaviour.name:
        case "tools" | "cut-off" as kind if not _has_results(fields):
            tool = fields["tools"][0]
            name = tool.get("function", tool)["name"]
            if kind == "tools":
                script = Script((), ((name, ARGUMENTS),) * int(behaviour.number(1)))
            else:
                script = Script((), ((name, ARGUMENTS[:-6]),), finish="length")
            return script
        case "long":
            return Script((" tree",) * int(behaviour.number(100)))
        case "huge":
            size = int(behaviour.number(_HUGE))
            return Script(tuple("x" * min(_PIECE, size - at) for at in range(0, size, _PIECE)))
        case "echo":
            echoed_request = {"path": request.path_qs, "headers": dict(request.headers), "body": fields}
            return Script((json.dumps(echoed_request),))
        case "cached" | "written" | "thoughts" | "no-usage" as name:
            tokens = int(behaviour.number(1))
            return Script(
                HELLO.words,
                usage=name != "no-usage",
                cached_tokens=tokens if name == "cached" else 0,
                written_tokens=tokens if name == "written" else 0,
                thoughts="Let me see." if name == "thoughts" else "",
            )
    return build_script(fields) if behaviour.name == "obedient" else HELLO


def _has_results(fields: Any) -> bool:
    """Whether the last thing told is the result of a call, on any of the wires."""
    last = (fields.get("messages") or fields.get("input"))[-1]
    if not isinstance(last, dict):
        return False
    content = last.get("content")
    kinds = [part.get("type") for part in content] if isinstance(content, list) else []
    return last.get("role") == "tool" or last.get("type") == "function_call_output" or "tool_result" in kinds


async def _send_whole(request: web.BaseRequest, body: bytes, behaviour: Behaviour) -> web.StreamResponse:
    if behaviour.name == "malformed-json":
        body = body[: len(body) // 2]
    if behaviour.name != "drop":
        return web.Response(body=body, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    raise _drop_connection(request)


async def _send_stream(
    request: web.BaseRequest, wire: Wire, frames: tuple[bytes, ...], behaviour: Behaviour
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    pause = behaviour.number(0.02) if behaviour.name == "slow-tokens" else 0.0
    for piece in _split_stream(wire, frames, behaviour):
        if pause:
            await asyncio.sleep(pause)
        await response.write(piece)
        if behaviour.name == "split":
            await asyncio.sleep(0)
    if behaviour.name == "drop":
        raise _drop_connection(request)
    await response.write_eof()
    return response


def _split_stream(wire: Wire, frames: tuple[bytes, ...], behaviour: Behaviour) -> Iterator[bytes]:
    """Returns the bytes of a stream, in the portions in which they are written."""
    end = [wire.end] if wire.end else []
    match behaviour.name:
        case "drop" | "stop":
            yield from frames[: int(behaviour.number(2))]
        case "error-frame":
            yield from frames[: int(behaviour.number(2))]
            error = wire.error(500, "upstream_500", "The upstream failed in the middle.")
            yield (b"event: error\n" if wire is MESSAGES else b"") + upstream_wires.encode_data(error)
        case "error-beside":
            yield from frames[: int(behaviour.number(2))]
            last_choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
            yield upstream_wires.encode_data(
                {**wire.error(500, "upstream_500", "The upstream failed."), "choices": [last_choice]}
            )
            yield from end
        case "malformed-sse":
            yield from (*frames[:2], b'data: {"id": "chatcmpl-\n\n', *frames[2:], *end)
        case "no-done":
            yield from frames[:-1] if wire is not CHAT else frames
        case "comments":
            for frame in (*frames, *end):
                yield b": still working\n\n"
                yield b"retry: 1000\r\n" + frame.replace(b"\n", b"\r\n")
        case "split":
            whole = b"".join((*frames, *end))
            yield from (whole[at : at + 7] for at in range(0, len(whole), 7))
        case _:
            yield from (*frames, *end)


def _build_embeddings(fields: Any) -> dict[str, Any]:
    """A vector for each text, the same for the same text, of as many dimensions as asked for, or eight."""
    texts = fields["input"] if isinstance(fields["input"], list) else [fields["input"]]
    entries = []
    for index, text in enumerate(texts):
        digest = hashlib.sha256(json.dumps(text).encode()).digest()
        vector = [digest[at % 32] / 255 for at in range(fields.get("dimensions") or 8)]
        encoded_vector = base64.b64encode(array("f", vector).tobytes()).decode()
        embedding = encoded_vector if fields.get("encoding_format") == "base64" else vector
        entries.append({"object": "embedding", "index": index, "embedding": embedding})
    usage = {"prompt_tokens": PROMPT_TOKENS * len(texts), "total_tokens": PROMPT_TOKENS * len(texts)}
    return {"object": "list", "data": entries, "model": fields["model"], "usage": usage}


def _error_response(
    wire: Wire, status: int, code: str, message: str, headers: LooseHeaders | None = None
) -> web.StreamResponse:
    return web.json_response(wire.error(status, code, message), status=status, headers=headers)


def _proxy_response(name: str) -> web.StreamResponse | None:
    """Returns the answer of a proxy between server and provider."""
    if name == "html":
        return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")
    if name == "redirect":
        return web.Response(status=307, headers={"location": "http://169.254.169.254/latest/meta-data/"})
    return None


def _drop_connection(request: web.BaseRequest) -> ConnectionResetError:
    assert request.transport is not None
    request.transport.abort()
    return ConnectionResetError()


async def _serve_forever(port: int, behaviour: str) -> None:
    async with start_upstream(port, keep=0, behaviour=behaviour) as fake:
        print(fake.url.rpartition(":")[2], flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A provider of models on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--behaviour", default="")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_forever(options.port, options.behaviour))
