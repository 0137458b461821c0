"""What small requests cost that ask the built-in model for much work: processor time, and memory at its highest."""

import json
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

from baobab.runtime.gateway.builtin import echo
from baobab.runtime.work_budget import OverBudget
from tests.bench.size import size
from tests.tools.ai.test_bombs import FILLED, SCHEMAS, build_requests, build_tool

_ROUNDS = size(5)
_MOST_MS, _MOST_MB = 50, 20


class Cost(NamedTuple):
    """The best of some rounds: the machine's other work only ever slows a round down."""

    milliseconds: float
    megabytes: float
    outcome: str


def list_bombs() -> dict[str, dict[str, Any]]:
    """The bodies of chat completions by what they are."""
    bodies = {}
    for schema in SCHEMAS:
        for shape, (_, body) in zip(("answer", "tool"), build_requests(schema())[:2], strict=True):
            bodies[f"{schema.__name__}, {shape}"] = body
    prompt = FILLED + "\n" + "x" * 70_000
    bodies["filled arguments"] = {"messages": [{"role": "user", "content": prompt}], "tools": [build_tool({})]}
    plan = '/call look {}\n/then look {"all": ' + json.dumps(["$1"] * 5_000) + "}"
    call = {"id": "one", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    results: list[dict[str, Any]] = [
        {"role": "user", "content": plan},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "one", "content": json.dumps(list(range(20_000)))},
    ]
    bodies["filled results"] = {"messages": results, "tools": [build_tool({})]}
    return bodies


def run() -> dict[str, Cost]:
    return {name: _measure({"model": "baobab/echo", **body}) for name, body in list_bombs().items()}


def report(costs: dict[str, Cost]) -> Iterator[str]:
    yield f"{'bomb':28}{'ms':>8}{'MB':>8}  outcome (promised: {_MOST_MS} ms, {_MOST_MB} MB)"
    for name, cost in costs.items():
        over = " TOO MUCH" if cost.milliseconds > _MOST_MS or cost.megabytes > _MOST_MB else ""
        yield f"{name:28}{cost.milliseconds:>8.1f}{cost.megabytes:>8.1f}  {cost.outcome}{over}"


def _measure(body: dict[str, Any]) -> Cost:
    # What is loaded with the first use is not the request's.
    outcome, seconds = _answer_request(body), []
    for _ in range(_ROUNDS):
        began = time.thread_time()
        _answer_request(body)
        seconds.append(time.thread_time() - began)
    tracemalloc.start()
    _answer_request(body)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Cost(min(seconds) * 1000, peak_bytes / 2**20, outcome)


def _answer_request(body: dict[str, Any]) -> str:
    """Do what the gateway does: a little at once, and all of it anew where that is not enough."""
    for budget in (echo.small_budget(), echo.full_budget()):
        try:
            echo.complete_chat(body, budget=budget, completion_id="bomb", created=1)
        except OverBudget:
            continue
        except echo.BadParameter:
            return "refused"
        return "answered"
    return "over the budget"
