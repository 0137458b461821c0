"""One call of a function: what it gets, with whose right it acts, what became of it, and what is written down."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.functions.answer import FunctionAnswer, LogLine, Report
from baobab.runtime.functions.engine import FunctionEngine
from baobab.runtime.functions.errors import (
    EngineUnavailable,
    FunctionError,
    FunctionsBusy,
    FunctionThrew,
    FunctionTimedOut,
    NotAResponse,
    OutOfMemory,
)
from baobab.runtime.functions.program import FunctionRequest, Program
from baobab.tools.core import Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.call import ToolRunner
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import AppPaused
from baobab.tools.core.stream import ClientGone
from baobab.tools.functions.env import Masks, build_platform_env, open_app_env, open_env
from baobab.tools.functions.errors import AnswerBroken, FunctionsFull, PublicNotFound, RuntimeAway, TooDeep
from baobab.tools.functions.headers import list_left_out
from baobab.tools.functions.host import FunctionHost
from baobab.tools.functions.identity import Identity, act_as_app
from baobab.tools.functions.invocations import InvocationLog
from baobab.tools.functions.live import FunctionCache, LiveFunctions

MOST_HOPS = 4
"""How deep functions call each other."""
_NAME_SECONDS, _MOST_NAMES = 60.0, 10_000
_JSON = [("content-type", "application/json")]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call of a function that is to be made.

    id: by which its steps are remembered; the same whenever a stored call is made again. request_id: what the function
    and the log call it. number: the version, if not the live one. hops: how many functions lie before it. cause: the
    trigger that makes the call, as `RequestContext.trigger`.
    """

    registry: ToolRunner
    services: Services
    app: App
    name: str
    request: FunctionRequest
    identity: Identity
    trigger: str
    id: str
    request_id: str
    path: str
    ip: str = "local"
    number: int | None = None
    read_only: bool = False
    hops: int = 0
    cause: Mapping[str, Any] | None = None
    timeout_ms: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """What a call answers: always something, also where the function failed.

    is_failure: it did not answer itself. end: ends with all that the call does, what it gave to `waitUntil` included,
    and says whether it came to its own end; None where nothing goes on after the answer.
    """

    status: int
    headers: list[tuple[str, str]]
    body: AsyncGenerator[bytes, None]
    is_failure: bool = False
    end: "asyncio.Task[bool] | None" = None

    async def wait_for_end(self) -> None:
        """Waits until all is done, for work that is made again if the server is lost before. Raises RuntimeAway where
        the server stops before that.
        """
        if self.end is not None and not await asyncio.shield(self.end):
            raise RuntimeAway("The server stopped before the function had done all that it gave to waitUntil.")

    async def read(self, most: int | None = None) -> bytes | None:
        """Returns the whole body; None if it has more bytes than `most`. It is read to its end in any case.

        Raises AnswerBroken.
        """
        pieces, size = [], 0
        try:
            async for piece in self.body:
                size += len(piece)
                if most is None or size <= most:
                    pieces.append(piece)
        except ClientGone as exc:
            raise AnswerBroken from exc
        return None if most is not None and size > most else b"".join(pieces)


async def find_function(services: Services, app_id: str, name: str) -> tuple[LiveFunctions, Any]:
    """Returns the functions of an app and the row of one. Raises PublicNotFound."""
    live = await services.of(FunctionCache).get(app_id)
    row = live.rows.get(name)
    if row is None:
        raise PublicNotFound
    return live, row


async def invoke(invocation: Invocation) -> Answer:
    """Calls a function. Raises AppPaused, PublicNotFound, TooDeep, InvocationsExhausted, FunctionsFull, RuntimeAway."""
    services, app = invocation.services, invocation.app
    if app.is_paused:
        raise AppPaused(app.paused_reason)
    if invocation.hops > MOST_HOPS:
        raise TooDeep
    live, row = await find_function(services, app.id, invocation.name)
    version = await services.of(FunctionCache).get_version(app.id, row.id, invocation.number or row.version)
    if version is None:
        raise PublicNotFound(f"The function has no version {invocation.number}.")
    engine = services.parts.get(FunctionEngine)
    if not isinstance(engine, FunctionEngine):
        raise RuntimeAway
    log = services.of(InvocationLog)
    await log.begin(app)
    env = {**open_app_env(services.vault, app.id, live.app_env), **open_env(services.vault, row.id, row.env)}
    masks = Masks(env)
    default_model = await services.of(_Models).find(invocation)
    env |= build_platform_env(services, app, default_model)
    language: Any = version.language
    program = Program(app.id, app.organisation_id, row.name, language, version.code, version.sha256, row.memory_mb)
    host = FunctionHost(invocation, row, invoke)
    record = _Record(invocation, row, version.number, masks)
    try:
        answer = await engine.invoke(
            program,
            invocation.request,
            _build_context(invocation, live, row, default_model),
            env,
            host,
            timeout_ms=min(row.timeout_ms, invocation.timeout_ms or row.timeout_ms),
            on_log=_ignore,
        )
    except FunctionsBusy as exc:
        raise FunctionsFull(retry_after=exc.retry_after_seconds) from exc
    except EngineUnavailable as exc:
        _log.error("functions cannot run: %s", exc)
        raise RuntimeAway from exc
    except FunctionError as exc:
        return _describe_failure(invocation, row, record, exc)
    end = log.follow(_record_end(answer, record))
    return Answer(answer.status, list(answer.headers), _iterate(answer.body), end=end)


class _Record:
    """Writes down what becomes of an invocation, without the secrets of its environment."""

    def __init__(self, invocation: Invocation, row: Any, version: int, masks: Masks) -> None:
        self.masks = masks
        self._invocation = invocation
        self._row = row
        self._version = version
        self._clock = invocation.services.clock
        self._started_at = self._clock.now()

    def write(
        self,
        status: int,
        report: Report | None,
        error: str | None = None,
        stack: str | None = None,
        left_out: Sequence[str] = (),
    ) -> None:
        """Adds the invocation to the log. left_out: the headers of its answer that are not sent."""
        invocation, masks = self._invocation, self.masks
        lines = [] if report is None else report.logs
        logs = [
            {"level": each.level, "message": masks.apply(each.message), "at": _write_moment(each)} for each in lines
        ]
        if left_out:
            message = f"Not sent with the answer: {', '.join(left_out)} (docs/functions.md says why)."
            logs.append({"level": "warn", "message": message, "at": self._clock.now().isoformat()})
        seconds = (self._clock.now() - self._started_at).total_seconds()
        invocation.services.of(InvocationLog).record(
            {
                "app_id": invocation.app.id,
                "id": invocation.services.ids.uuid_at(self._started_at),
                "function_id": self._row.id,
                "name": self._row.name,
                "version": self._version,
                "trigger": invocation.trigger,
                "method": invocation.request.method,
                "path": invocation.path,
                "status_code": status,
                "duration_ms": seconds * 1000 if report is None else report.duration_ms,
                "memory_mb": None if report is None else report.memory_mb,
                "error": masks.apply_to(error or (None if report is None else report.error)),
                "stack": masks.apply_to(stack or (None if report is None else report.stack)),
                "shutdown_reason": None if report is None else report.shutdown_reason,
                "console_logs": logs,
                "request_id": invocation.request_id,
                "started_at": self._started_at,
            }
        )


def _describe_failure(invocation: Invocation, row: Any, record: _Record, exc: FunctionError) -> Answer:
    """Writes down how a function failed before it answered, and returns what is answered in its place."""
    status, stack = 500, None
    match exc:
        case FunctionTimedOut():
            message = f"The function did not answer within {round(exc.duration_ms)} ms."
            body = {"error": "function_timeout", "message": message, "duration_ms": round(exc.duration_ms)}
            status = 504
        case FunctionThrew():
            stack = exc.stack
            body = {"error": record.masks.apply(exc.error or "The function failed.")}
            if stack is not None and invocation.identity.runs_app:
                body["stack"] = record.masks.apply(stack)
        case NotAResponse():
            body = {"error": "The function did not return a Response.", "code": "function_no_response"}
        case OutOfMemory():
            message = f"The function used more than its {row.memory_mb} MB of memory."
            body = {"error": "function_out_of_memory", "message": message}
        case _:
            body = {"error": record.masks.apply(str(exc)) or "The function failed."}
    record.write(status, exc.report, str(body.get("message") or body["error"]), stack)
    return build_answer(status, body)


async def _record_end(answer: FunctionAnswer, record: _Record) -> bool:
    """Writes down what became of a call, once all that it does has ended, and returns whether it came to its own end:
    not if it was stopped, as all calls are when the server stops.
    """
    try:
        report: Report = await answer.report
    except asyncio.CancelledError:
        # The engine was closed, or this task: there is no report, and the call is recorded all the same.
        record.write(answer.status, None)
        raise
    except FunctionError as exc:
        record.write(500, exc.report, str(exc) or type(exc).__name__)
        return True
    record.write(answer.status, report, left_out=list_left_out(answer.headers))
    return report.shutdown_reason != "TerminationRequested"


def build_answer(status: int, body: Mapping[str, Any]) -> Answer:
    """Returns an answer of the server's own, as JSON."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield to_json(body)

    return Answer(status, list(_JSON), pieces(), is_failure=True)


async def _iterate(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yields the body of an answer. Raises AnswerBroken where the function fails before its first byte, and ClientGone
    after it: then the connection breaks off, since nothing else tells that the body is not whole.
    """
    has_begun = False
    try:
        async for piece in body:
            if piece:
                has_begun = True
                yield piece
    except FunctionError as exc:
        if has_begun:
            raise ClientGone from exc
        raise AnswerBroken from exc
    finally:
        close = getattr(body, "aclose", None)
        if close is not None:
            await close()


class _Models:
    """The default models of apps, each read at most once a minute."""

    def __init__(self, services: Services) -> None:
        self._time = services.clock.time
        self._names: dict[str, tuple[float, str | None]] = {}

    async def find(self, invocation: Invocation) -> str | None:
        app_id = invocation.app.id
        entry = self._names.get(app_id)
        if entry is not None and entry[0] > self._time():
            return entry[1]
        registry, caller = invocation.registry, act_as_app(invocation.app, invocation.app.id)
        context = RequestContext("function", invocation.request_id)
        config, _ = await registry.run(registry.find("ai_config"), {"app_id": app_id}, caller, context)
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        self._names[app_id] = (self._time() + _NAME_SECONDS, config["config"]["defaultModel"])
        return self._names[app_id][1]


def _build_context(invocation: Invocation, live: LiveFunctions, row: Any, default_model: str | None) -> dict[str, Any]:
    """Returns what `ctx` is built from (document 4, C3)."""
    app, identity = invocation.app, invocation.identity
    app_row: Any = live.app_row
    jwt: Mapping[str, Any] = app_row.jwt_config if app_row is not None else {}
    return {
        "invocation_id": invocation.id,
        "read_only": invocation.read_only,
        "extra": dict(invocation.extra),
        "user": None if identity.user_id is None else {"id": identity.user_id},
        "caller": identity.describe(),
        "app": {
            "id": app.id,
            "name": app.name,
            "ownerId": live.owner_id,
            "region": app.region,
            "subdomain": app.subdomain,
            "anonKey": app.anon_key,
            "allowedOrigins": sorted(app.allowed_origins),
            "substrateOrganizationId": None if app_row is None else app_row.substrate_organization_id,
            "frontend": None,
            "auth": {
                "accessTokenTtl": jwt.get("accessTokenTtl", "1h"),
                "refreshTokenTtlDays": app.session_days,
                "hookFunction": None if app_row is None else app_row.auth_hook_function,
            },
            "ai": None if default_model is None else {"defaultModel": default_model},
            "billing": None,
        },
        "request": {
            "id": invocation.request_id,
            "ip": invocation.ip,
            "country": None,
            "functionName": row.name,
        },
    }


def build_json_request(method: str, url: str, headers: Mapping[str, str], body: Any) -> FunctionRequest:
    """Returns a request with a JSON body; with none where it is None."""
    pairs = [(name.lower(), value) for name, value in headers.items()]
    if body is None:
        return FunctionRequest(method, url, tuple(pairs), None)
    if not any(name == "content-type" for name, _ in pairs):
        pairs.append(("content-type", "application/json"))
    return FunctionRequest(method, url, tuple(pairs), iterate_bytes(to_json(body)))


async def iterate_bytes(content: bytes) -> AsyncGenerator[bytes, None]:
    """Yields a whole body."""
    yield content


def read_body(content: bytes, content_type: str) -> Any:
    """Returns the body of an answer for callers that take JSON: the value, else the text."""
    if "json" in content_type:
        try:
            return from_json(content, allow_inf_nan=False)
        except ValueError:
            pass
    return content.decode("utf-8", errors="replace")


def _write_moment(line: LogLine) -> str:
    return datetime.fromtimestamp(line.at / 1000, UTC).isoformat()


def _ignore(line: LogLine) -> None:
    del line
