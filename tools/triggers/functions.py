"""Triggers that belong to functions of the app: a function says when it starts, and these wait for it."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.net.deliveries import build_attempt
from baobab.tools.core import AppKey, AppNotFound, BaobabError, Job, RetryLater
from baobab.tools.core.auth.directory import App
from baobab.tools.core.context import RequestContext
from baobab.tools.triggers.errors import TriggerOfFunction

PREFIX = "fn-"
"""What the names of these triggers begin with."""
CRON, UPLOAD = "cron", "storage_upload"
FIRE = "functions_fire"
"""The tool that calls a function."""
OVERLAPS = "The tick before has not ended yet, so this one was left out."
_TRIED_FOR_SECONDS = 86_400
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5.0, 600.0
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


def build_name(function_id: str, kind: str) -> str:
    """Returns the name of the trigger that a function has of a kind."""
    return f"{PREFIX}{function_id}-{kind}"


def require_own(row: Any) -> None:
    """Raises TriggerOfFunction for a trigger that a function has."""
    if row is not None and "function" in row.action:
        raise TriggerOfFunction(f"This trigger belongs to the function {row.action['function']}.")


def fits_function(action: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Returns whether an event starts the function of an action, if it has one."""
    if action.get("kind") != UPLOAD:
        return True
    if not str(data.get("filename", "")).startswith(action["prefix"]):
        return False
    content_type = str(data.get("content_type", "")).partition(";")[0].strip().lower()
    kind = content_type.partition("/")[0]
    return not action["types"] or any(each in (content_type, f"{kind}/*", "*/*") for each in action["types"])


async def start_function(job: Job, app: App, trigger: Any, delivery: Any) -> Mapping[str, Any]:
    """Calls the function of a trigger, and returns the columns of the delivery after it.

    A function that fails is not called again: the delivery says why, and a person may send it again. Raises RetryLater
    while something passing is in the way, for a day.
    """
    services, now = job.services, job.services.clock.now()
    cause = {"id": trigger.id, "name": trigger.name, "event_id": delivery.event_id, "depth": delivery.depth + 1}
    context = RequestContext("job", job.id, base_url=services.options.base_url, brings_outside_text=delivery.tainted)
    context.trigger = cause
    arguments = {
        "app_id": app.id,
        "name": trigger.action["function"],
        "trigger": trigger.action["kind"],
        "payload": build_function_payload(trigger.action["kind"], delivery.payload),
        "request_id": delivery.id,
    }
    # Whoever deployed it may have left: the function is the app's.
    caller = AppKey(app.id, trigger.action["function_id"])
    try:
        async with network_wait():
            result, _ = await job.registry.run(job.registry.find(FIRE), arguments, caller, context)
    except AppNotFound:
        raise
    except BaobabError as error:
        words = " ".join(text for text in (error.message, error.remedy) if text)[:500]
        is_passing = error.status == _TOO_MANY_REQUESTS or error.status >= _SERVER_ERROR
        if is_passing and (now - delivery.created_at).total_seconds() < _TRIED_FOR_SECONDS:
            raise RetryLater(min(error.retry_after or _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS), words) from error
        return {"attempts": delivery.attempts + 1, "status": "failed", "error": words, "next_attempt_at": None}
    status, error_text = result["status"], result["error"]
    if error_text is None:
        return build_attempt(delivery.attempts, status, None, services.clock.now()).values
    values = {"attempts": delivery.attempts + 1, "status": "failed", "answer_status": status}
    return {**values, "error": error_text[:500], "next_attempt_at": None}


def build_function_payload(kind: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an event as a function gets it."""
    data = event["data"]
    if kind == CRON:
        return {"type": CRON, **{name: data.get(name) for name in ("schedule", "timezone", "scheduled_at")}}
    names = ("key", "object_id", "filename", "content_type", "size_bytes", "user_id")
    file = {name: data.get(name) for name in names}
    return {"type": UPLOAD, "bucket": "default", **file, "created_at": event["timestamp"]}
