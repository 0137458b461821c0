"""What triggers start: an agent, or a signed webhook; always with the present rights of whoever made the trigger."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from baobab.runtime.agents.spec.templates import TemplateError, fill_tree
from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.net.deliveries import Attempt, build_attempt, send
from baobab.runtime.net.webhooks import build_headers
from baobab.storage.secrets import Vault
from baobab.tools.core import BaobabError, Caller, Forbidden, Job, RetryLater, Services
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.access import find_role
from baobab.tools.core.auth.directory import App
from baobab.tools.core.call import ToolRunner
from baobab.tools.core.context import RequestContext
from baobab.tools.triggers.tables import triggers_table

MAKER = "triggers_set"
"""The tool that whoever made a trigger must still be allowed to call."""
TRIED_FOR_SECONDS = 86_400
"""How long it is tried to start an agent that has no room, or does not answer."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 600.0
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


class MakerGone(Exception):
    """Raised where whoever made a trigger may not make it any more. The text says why."""


def seal_context(trigger_id: str) -> str:
    return f"{triggers_table.name}.secret:{trigger_id}"


def open_secret(vault: Vault, row: Any) -> str:
    return vault.open(row.secret, seal_context(row.id)).decode()


def render_input(action: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an agent gets: the filled template, or the event itself. Raises TemplateError."""
    template = action.get("input")
    if template is None:
        return {"event": dict(payload)}
    agent_input: dict[str, Any] = fill_tree(template, {"event": payload})
    return agent_input


async def restore_maker(services: Services, registry: ToolRunner, app: App, row: Any) -> Caller:
    """Returns whoever made a trigger, with their present rights. Raises MakerGone."""
    try:
        async with services.database.reading() as connection:
            now = services.clock.now()
            caller = await proposers.restore_caller(connection.execute, services.credits, row.maker, now)
    except BaobabError as error:
        raise MakerGone(error.message) from error
    role = await find_role(services.directory, caller, app)
    if not registry.may_call(MAKER, caller, role):
        raise MakerGone("Whoever made the trigger is no longer an admin of the app, or uses a key with limits now.")
    return caller


async def start_agent(job: Job, app: App, trigger: Any, delivery: Any) -> dict[str, Any]:
    """Starts the agent of a trigger, once for each event. Returns the columns of the delivery after it.

    Raises RetryLater while something passing is in the way, for a day; MakerGone.
    """
    services, now = job.services, job.services.clock.now()
    caller = await restore_maker(services, job.registry, app, trigger)
    cause = {"id": trigger.id, "name": trigger.name, "event_id": delivery.event_id, "depth": delivery.depth + 1}
    context = RequestContext("job", job.id, base_url=services.options.base_url, brings_outside_text=delivery.tainted)
    context.trigger = cause
    try:
        arguments = {
            "app_id": app.id,
            "name": trigger.action["agent"],
            "input": render_input(trigger.action, delivery.payload),
            "idempotency_key": f"trigger:{delivery.id}:{delivery.rounds}",
        }
        result, _ = await job.registry.run(job.registry.find("agents_run"), arguments, caller, context)
    except TemplateError as exc:
        return _fail(delivery, f"The input cannot be made: {exc}.")
    except Forbidden as error:
        raise MakerGone(error.message) from error
    except BaobabError as error:
        words = " ".join(text for text in (error.message, error.remedy) if text)
        is_passing = error.status == _TOO_MANY_REQUESTS or error.status >= _SERVER_ERROR
        if is_passing and (now - delivery.created_at).total_seconds() < TRIED_FOR_SECONDS:
            raise RetryLater(min(error.retry_after or _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS), words) from error
        return _fail(delivery, words)
    return {**build_attempt(delivery.attempts, None, None, now).values, "run_id": result["run_id"]}


async def send_webhook(job: Job, app: App, trigger: Any, delivery: Any) -> Attempt:
    """Sends the webhook of a trigger once. Raises MakerGone."""
    services = job.services
    await restore_maker(services, job.registry, app, trigger)
    now: datetime = services.clock.now()
    body = to_json(delivery.payload)
    headers = build_headers(build_message_id(delivery.id), now, body, [open_secret(services.vault, trigger)])
    headers["idempotency-key"] = build_message_id(delivery.id)
    # A receiver that takes its time holds up no other job.
    async with network_wait():
        return await send(services.http_client, trigger.action["webhook"], headers, body, delivery.attempts, now)


def build_message_id(delivery_id: str) -> str:
    """Returns the id by which a receiver recognises a webhook that comes twice."""
    return f"msg_{delivery_id.replace('-', '')}"


def _fail(delivery: Any, words: str) -> dict[str, Any]:
    return {"attempts": delivery.attempts + 1, "status": "failed", "error": words[:500], "next_attempt_at": None}
