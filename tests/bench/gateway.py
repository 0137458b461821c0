"""The gateway against LiteLLM's own proxy and against a relay of raw bytes, before the same provider of models."""

import asyncio
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from tests.bench.callers import Caller, run_callers
from tests.bench.load import (
    Make,
    build_request,
    check_answer,
    fetch_body,
    free_port,
    measure_microseconds,
    start_server,
)
from tests.bench.peers.environments import LITELLM, install_peer
from tests.bench.rest import KEY, make_apps

_ROUNDS = 4
_CALLERS = (16, 64)
_TOKENS = 200
_MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Hello! Which trees grow oldest, and where do they stand?"},
]
_CHAT = "/v1/chat/completions"
_ONE, _TWO = "openai/gpt-4o-mini", "openai/gpt-oss-120b"

OURS, CHOSEN = "Baobab", "Baobab, of two providers"
RELAY, PROXY = "a relay of raw bytes", f"LiteLLM's proxy {LITELLM.version}"
RELAYED = "OpenAI, as a chat"


class Target(NamedTuple):
    pid: int
    port: int
    paths: list[str]
    model: str
    share: int = 1
    """How many times fewer calls it gets than the others."""


class Cost(NamedTuple):
    """Microseconds of the server's processor: a whole chat by the number of callers, and one more streamed token."""

    chats: dict[int, float]
    token: float
    stream: float
    """A stream of two hundred tokens, all of it."""


class Waits(NamedTuple):
    """Seconds of one caller, the median of a round, in the best of them."""

    direct: float
    relay: float
    ours: float


class Health(NamedTuple):
    """Seconds that GET /health takes, the median and the most, from its first answer until all is loaded."""

    without: tuple[float, float]
    """In a server that needs no LiteLLM."""
    loading: tuple[float, float]


class Figures(NamedTuple):
    costs: dict[str, Cost]
    token_costs: dict[str, float]
    """Microseconds of the server's processor for one more token of a stream between wires."""
    waits: Waits
    health: Health


async def run(requests: int = 1200) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        provider = free_port()
        async with start_server("-m", "tests.bench.peers.model_server", str(provider), port=provider):
            upstream = f"http://127.0.0.1:{provider}"
            async with contextlib.AsyncExitStack() as stack:
                kinds, health = await _start_targets(stack, folder, upstream)
                between = await _start_translator(stack, folder, upstream)
                rounds = [
                    {name: await _measure_cost(kind, requests) for name, kind in kinds.items()} for _ in range(_ROUNDS)
                ]
                tokens = [
                    {name: await _measure_token(kind, requests, holds) for name, (kind, holds) in between.items()}
                    for _ in range(_ROUNDS)
                ]
                waits = await _measure_waits(provider, kinds)
    costs = {
        name: Cost(
            {callers: min(one[name].chats[callers] for one in rounds) for callers in _CALLERS},
            min(one[name].token for one in rounds),
            min(one[name].stream for one in rounds),
        )
        for name in kinds
    }
    token_costs = {name: min(one[name] for one in tokens) for name in between}
    return Figures(costs, token_costs, waits, health)


async def _start_targets(
    stack: contextlib.AsyncExitStack, folder: str, upstream: str
) -> tuple[dict[str, Target], Health]:
    ours, two, relay, proxy = free_port(), free_port(), free_port(), free_port()
    one_provider = {"OPENAI_API_KEY": "sk-bench", "OPENAI_BASE_URL": f"{upstream}/v1"}
    two_providers = {
        "GROQ_API_KEY": "sk-bench", "GROQ_BASE_URL": f"{upstream}/v1",
        "TOGETHER_API_KEY": "sk-bench", "TOGETHER_BASE_URL": f"{upstream}/v1",
    }  # fmt: skip
    ours_pid, without = await _measure_health(stack, _start_baobab(f"{folder}/one", ours, one_provider), ours)
    two_pid, loading = await _measure_health(stack, _start_baobab(f"{folder}/two", two, two_providers), two)
    health = Health(without, loading)
    relay_pid = await stack.enter_async_context(
        start_server("-m", "tests.bench.peers.raw_relay", upstream, str(relay), port=relay)
    )
    kinds = {
        OURS: Target(ours_pid, ours, await _chat_paths(ours), _ONE),
        CHOSEN: Target(two_pid, two, await _chat_paths(two), _TWO),
        RELAY: Target(relay_pid, relay, [_CHAT], _ONE),
    }
    try:
        python = str(await asyncio.to_thread(install_peer, LITELLM))
    except subprocess.CalledProcessError:
        print("LiteLLM's proxy cannot be installed here; ours stands alone.", flush=True)
        return kinds, health
    command = ("-m", "tests.bench.peers.litellm_proxy", upstream, str(proxy), KEY)
    proxy_pid = await stack.enter_async_context(start_server(*command, port=proxy, python=python))
    return {**kinds, PROXY: Target(proxy_pid, proxy, [_CHAT], _ONE, share=8)}, health


async def _start_translator(
    stack: contextlib.AsyncExitStack, folder: str, upstream: str
) -> dict[str, tuple[Target, bytes]]:
    """A server whose providers speak three wires, by what is asked of it; and what an answer then holds."""
    port, keys = free_port(), {"OPENAI_API_KEY": "sk-bench", "ANTHROPIC_API_KEY": "sk-bench", "GEMINI_API_KEY": "bench"}
    bases = {"OPENAI_BASE_URL": f"{upstream}/v1", "ANTHROPIC_BASE_URL": upstream, "GEMINI_API_BASE": upstream}
    pid = await stack.enter_async_context(_start_baobab(f"{folder}/between", port, {**keys, **bases}))
    chats = await _chat_paths(port)
    messages = [path.replace("/chat/completions", "/messages") for path in chats]
    chat_end, messages_end = b"data: [DONE]", b"event: message_stop"
    return {
        RELAYED: (Target(pid, port, chats, _ONE), chat_end),
        "Claude, as a chat": (Target(pid, port, chats, "anthropic/claude-haiku-4.5"), chat_end),
        "Gemini, as a chat": (Target(pid, port, chats, "google/gemini-2.5-flash"), chat_end),
        "OpenAI, as messages": (Target(pid, port, messages, _ONE), messages_end),
    }


async def _measure_token(kind: Target, requests: int, holds: bytes) -> float:
    streams = max(requests // 20, 16)
    long, short = [
        await measure_microseconds(kind.pid, kind.port, _build_chats(kind, tokens), requests=streams, holds=holds)
        for tokens in (_TOKENS, 1)
    ]
    return (long - short) / (_TOKENS - 1)


async def _chat_paths(port: int) -> list[str]:
    return [_CHAT.replace("/v1", f"/v1/{app}") for app in await asyncio.to_thread(make_apps, port)]


@contextlib.asynccontextmanager
async def _start_baobab(folder: str, port: int, providers: dict[str, str]) -> AsyncIterator[int]:
    environment = {
        "BAOBAB_DATA": folder, "BAOBAB_PORT": str(port), "BAOBAB_BOOTSTRAP_KEY": KEY,
        # Three thousand calls a minute for each app, five dollars for all: both are held; the load is spread over apps.
        "BAOBAB_PLAN": "launch", "BAOBAB_AI_PROBE": "false", **providers,
    }  # fmt: skip
    async with start_server("-m", "baobab", "serve", port=port, environment=environment) as pid:
        yield pid


async def _measure_cost(kind: Target, requests: int) -> Cost:
    chats = {
        callers: await measure_microseconds(
            kind.pid, kind.port, _build_chats(kind, None), requests=requests // kind.share, connections=callers,
            holds=b"assist you",
        )
        for callers in _CALLERS
    }  # fmt: skip
    streams = max(requests // 20 // kind.share, 16)
    long, short = [
        await measure_microseconds(
            kind.pid, kind.port, _build_chats(kind, tokens), requests=streams, holds=b"data: [DONE]",
        )
        for tokens in (_TOKENS, 1)
    ]  # fmt: skip
    return Cost(chats, (long - short) / (_TOKENS - 1), long)


def _build_chats(kind: Target, streamed_tokens: int | None) -> Make:
    """streamed_tokens: how many tokens, in a stream; None: in one piece."""
    chat = {"model": kind.model, "messages": _MESSAGES, "temperature": 0.2}
    if streamed_tokens is not None:
        chat |= {"stream": True, "max_tokens": streamed_tokens, "stream_options": {"include_usage": True}}
    body = json.dumps(chat).encode()
    requests = [build_request("POST", path, kind.port, body, authorization=f"Bearer {KEY}") for path in kind.paths]
    return lambda number: requests[number % len(requests)]


async def _measure_waits(provider: int, kinds: dict[str, Target]) -> Waits:
    """How long one caller waits: straight at the provider, through the relay, and through us."""
    ours, relay = kinds[OURS], kinds[RELAY]
    three = (relay._replace(port=provider), relay, ours)
    rounds = [[await _median_wait(kind, 300) for kind in three] for _ in range(_ROUNDS)]
    return Waits(*(min(waits) for waits in zip(*rounds, strict=True)))


async def _median_wait(kind: Target, requests: int) -> float:
    waits: list[float] = []
    make = _build_chats(kind, None)

    def caller() -> Caller:
        for number in range(requests):
            request = make(number)
            began = time.perf_counter()
            answer = yield request
            waits.append(time.perf_counter() - began)
            check_answer(answer, 200, b"assist you")

    await run_callers(kind.port, [caller()])
    return statistics.median(waits)


async def _measure_health(
    stack: contextlib.AsyncExitStack, server: contextlib.AbstractAsyncContextManager[int], port: int
) -> tuple[int, tuple[float, float]]:
    """A server that starts, and what it takes to ask it how it is meanwhile; what comes before its first answer is no
    part of that."""
    starting, waits = asyncio.create_task(stack.enter_async_context(server)), []
    request = build_request("GET", "/health", port)
    while not starting.done():
        began = time.perf_counter()
        with contextlib.suppress(OSError):
            await fetch_body(port, request)
            waits.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    return await starting, (statistics.median(waits[1:]), max(waits[1:]))


def report(figures: Figures) -> list[str]:
    costs, token_costs, waits, health = figures
    ours, relay = costs[OURS], costs[RELAY]
    head = "".join(f"{f'chat, {callers}':>12}" for callers in _CALLERS)
    lines = [
        "The gateway: server CPU in us, and against Baobab's", "",
        f"{'':26}{head}{'a token':>12}{f'{_TOKENS} tokens':>12}",
    ]  # fmt: skip
    for name, cost in costs.items():
        single = (*cost.chats.values(), cost.token, cost.stream)
        lines.append(f"{name:26}" + "".join(f"{value:12.1f}" for value in single))
        base = (*ours.chats.values(), ours.token, ours.stream)
        lines.append(f"{'':26}" + "".join(f"{value / one:12.2f}" for value, one in zip(single, base, strict=True)))
    lines += ["", "One more token of a stream, in us, and against one that is relayed (to hold: at most 150 us)"]
    lines += [f"{name:26}{value:12.1f}{value / token_costs[RELAYED]:12.2f}" for name, value in token_costs.items()]
    lines.append("")
    if PROXY in costs:
        for name in (OURS, CHOSEN):
            times = ", ".join(f"{costs[PROXY].chats[callers] / costs[name].chats[callers]:.1f}" for callers in _CALLERS)
            lines.append(f"LiteLLM's proxy / {name}, a chat: {times} (to hold: at least 15)")
    lines += [
        f"Baobab / the relay, a token: {ours.token / relay.token:.2f} (to hold: at most 2)",
        f"one caller waits: {waits.direct * 1e3:.2f} ms at the provider, {waits.relay * 1e3:.2f} by the relay, "
        f"{waits.ours * 1e3:.2f} by us: {(waits.ours - waits.direct) * 1e3:.2f} more (to hold: less than 1)",
        f"GET /health while LiteLLM is loaded: median {health.loading[0] * 1e3:.1f} ms, "
        f"most {health.loading[1] * 1e3:.0f} (a start without: {health.without[0] * 1e3:.1f}, "
        f"{health.without[1] * 1e3:.0f})",
    ]
    return lines


if __name__ == "__main__":
    print("\n".join(report(asyncio.run(run()))))
