"""The callers that may call the tools of ai, and the arguments for it (tests/tools/access.py)."""

from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from baobab.tools.core.signed_urls import build_signed_url
from tests.tools.access import ACCOUNTS, ADMINS, AI, GATEWAY, PUBLIC, RUNNERS, Caller, World

POLICY = {
    "gateway_chat": GATEWAY,
    "gateway_embeddings": GATEWAY,
    "gateway_messages": GATEWAY,
    "gateway_messages_count": GATEWAY,
    "gateway_model": GATEWAY,
    "gateway_models": GATEWAY,
    # Everybody here is the owner of an organisation of their own, where the credential leads.
    "model_servers_list": ACCOUNTS,
    "model_servers_create": ACCOUNTS,
    "model_servers_get": ACCOUNTS,
    "model_servers_update": ACCOUNTS,
    "model_servers_probe": ACCOUNTS,
    "model_servers_delete": ACCOUNTS,
    "provider_keys_list": ACCOUNTS,
    "provider_keys_set": ACCOUNTS,
    "provider_keys_delete": ACCOUNTS,
    "gateway_public_models": PUBLIC,
    "gateway_response": GATEWAY,
    "gateway_response_delete": GATEWAY,
    "gateway_responses": GATEWAY,
    "ai_chat": AI,
    "ai_embeddings": AI,
    "ai_embed": AI,
    "ai_messages": AI,
    "ai_messages_count": AI,
    "ai_model": AI,
    "ai_model_list": AI,
    "ai_models": AI,
    "ai_response": AI,
    "ai_response_delete": AI,
    "ai_responses": AI,
    "ai_config": RUNNERS,
    "ai_config_update": ADMINS,
    "ai_usage": RUNNERS,
    "images_generate": AI,
    "images_job": AI,
    "images_content": AI,
    "videos_generate": AI,
    "videos_job": AI,
    "videos_content": AI,
    "meetings_start": RUNNERS,
    "meetings_get": RUNNERS,
    "meetings_stop": RUNNERS,
    "meetings_list": RUNNERS,
    "meetings_estimate": RUNNERS,
    "meetings_transcript": RUNNERS,
    "meetings_usage": RUNNERS,
    "meetings_webhook_get": RUNNERS,
    "meetings_deliveries": RUNNERS,
    "meetings_deliveries_resend": RUNNERS,
    "meetings_webhook_set": ADMINS,
    "meetings_calendars_list": RUNNERS,
    "meetings_calendar_events": RUNNERS,
    "meetings_calendars_set": ADMINS,
    "meetings_calendars_delete": ADMINS,
    "meetings_transcripts_get": RUNNERS,
    "meetings_transcripts_set": ADMINS,
    "gateway_meetings_start": GATEWAY,
    "gateway_meetings_get": GATEWAY,
    "gateway_meetings_stop": GATEWAY,
    "gateway_meetings_list": GATEWAY,
    "gateway_meetings_estimate": GATEWAY,
    "gateway_meetings_transcript": GATEWAY,
    "gateway_meetings_webhook_get": ACCOUNTS,
    "gateway_meetings_deliveries": ACCOUNTS,
    "gateway_meetings_deliveries_resend": ACCOUNTS,
    "gateway_meetings_webhook_set": ACCOUNTS,
    "gateway_meetings_status": PUBLIC,
    # This server has no provider that could send one.
    "gateway_meetings_hook": "404 404 404 404 404 404 404 404 404 404 404 404 404 404",
    "gateway_meetings_content": PUBLIC,
}


async def for_gateway_response(world: World, caller: Caller) -> dict[str, Any]:
    body = {"model": "baobab/echo", "input": "Hello!"}
    answer = await caller.client.post("/v1/responses", json=body, headers=caller.headers)
    return {"response_id": answer.json().get("id", "resp_0")}


async def for_gateway_response_delete(world: World, caller: Caller) -> dict[str, Any]:
    return await for_gateway_response(world, caller)


async def for_ai_response(world: World, caller: Caller) -> dict[str, Any]:
    body = {"model": "baobab/echo", "input": "Hello!"}
    answer = await caller.client.post(f"/v1/{world.app}/responses", json=body, headers=caller.headers)
    return {"app_id": world.app, "response_id": answer.json().get("id", "resp_0")}


async def for_ai_response_delete(world: World, caller: Caller) -> dict[str, Any]:
    return await for_ai_response(world, caller)


async def for_meetings_calendars_set(world: World, caller: Caller) -> dict[str, Any]:
    # Switched off, since nobody has connected a calendar here.
    return {"app_id": world.app, "user_id": world.owner.id, "toolkit": "google-calendar", "enabled": False}


async def for_meetings_calendars_delete(world: World, caller: Caller) -> dict[str, Any]:
    body = await for_meetings_calendars_set(world, caller)
    path = f"/v1/{body.pop('app_id')}/ai/meetings/calendars"
    calendar = await world.request("PUT", path, world.owner.headers, **body)
    return {"app_id": world.app, "calendar_id": calendar["id"]}


async def for_model_servers_create(world: World, caller: Caller) -> dict[str, Any]:
    # Where nobody listens: that is told at once.
    return {"name": "lab", "url": "http://127.0.0.1:1/v1"}


async def for_model_servers_get(world: World, caller: Caller) -> dict[str, Any]:
    server = await for_model_servers_create(world, caller)
    await caller.client.post("/v1/ai/servers", json=server, headers=caller.headers)
    return {"name": "lab"}


async def for_model_servers_update(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_model_servers_get(world, caller), "key": None}


async def for_model_servers_probe(world: World, caller: Caller) -> dict[str, Any]:
    return await for_model_servers_get(world, caller)


async def for_model_servers_delete(world: World, caller: Caller) -> dict[str, Any]:
    return await for_model_servers_get(world, caller)


async def for_provider_keys_set(world: World, caller: Caller) -> dict[str, Any]:
    return {"provider": "openai", "key": "sk-proj-0000"}


async def for_provider_keys_delete(world: World, caller: Caller) -> dict[str, Any]:
    arguments = await for_provider_keys_set(world, caller)
    await caller.client.put("/v1/ai/provider-keys/openai", json={"key": arguments["key"]}, headers=caller.headers)
    return {"provider": "openai"}


async def for_images_job(world: World, caller: Caller) -> dict[str, Any]:
    return await start_generation(world, "images", "baobab/picture", caller)


async def for_images_content(world: World, caller: Caller) -> dict[str, Any]:
    return await start_generation(world, "images", "baobab/picture", caller)


async def for_videos_job(world: World, caller: Caller) -> dict[str, Any]:
    return await start_generation(world, "videos", "baobab/film", caller)


async def for_videos_content(world: World, caller: Caller) -> dict[str, Any]:
    return await start_generation(world, "videos", "baobab/film", caller)


async def start_generation(world: World, kind: str, model: str, caller: Caller) -> dict[str, Any]:
    """A job of the caller's own, where it may have one: files are for who submitted them."""
    path, body = f"/v1/{world.app}/{kind}/completions", {"model": model, "prompt": "A tree"}
    response = await caller.client.post(path, json=body, headers=caller.headers)
    return {"app_id": world.app, "job_id": response.json().get("job_id", "none")}


async def for_ai_embed(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "texts": ["hello"]}


UNKNOWN = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
MEETING = "https://meet.google.com/abc-defg-hij"


async def start_bot(world: World, caller: Caller, app: str | None) -> dict[str, Any]:
    """A bot of the app, or of the caller's organisation; none that exists if the caller may have none.

    An organisation may have only so many, so the first is found again.
    """
    path = f"/v1/{app}/ai/meetings" if app else "/v1/ai/meetings"
    headers = caller.headers if app is None else world.callers["owner"].headers
    bots = (await caller.client.get(path, headers=headers)).json().get("bots") or []
    if bots:
        bot_id = bots[0]["id"]
    else:
        answer = await caller.client.post(path, json={"meetingUrl": MEETING}, headers=headers)
        bot_id = answer.json().get("id", UNKNOWN)
    return {"bot_id": bot_id, **({"app_id": app} if app else {})}


async def for_meetings_get(world: World, caller: Caller) -> dict[str, Any]:
    return await start_bot(world, caller, world.app)


async def for_meetings_stop(world: World, caller: Caller) -> dict[str, Any]:
    return await start_bot(world, caller, world.app)


async def for_meetings_transcript(world: World, caller: Caller) -> dict[str, Any]:
    return await start_bot(world, caller, world.app)


async def for_meetings_estimate(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "durationMinutes": 60}


async def for_gateway_meetings_hook(world: World, caller: Caller) -> dict[str, Any]:
    return {"provider": "recall"}


async def for_gateway_meetings_get(world: World, caller: Caller) -> dict[str, Any]:
    return await start_bot(world, caller, None)


async def for_gateway_meetings_stop(world: World, caller: Caller) -> dict[str, Any]:
    return await start_bot(world, caller, None)


async def for_gateway_meetings_transcript(world: World, caller: Caller) -> dict[str, Any]:
    return await start_bot(world, caller, None)


async def for_meetings_deliveries_resend(world: World, caller: Caller) -> dict[str, Any]:
    # Nobody has said where to, which is told to those who may ask.
    return {"app_id": world.app, "delivery_id": UNKNOWN}


async def for_gateway_meetings_deliveries_resend(world: World, caller: Caller) -> dict[str, Any]:
    return {"delivery_id": UNKNOWN}


async def for_gateway_meetings_content(world: World, caller: Caller) -> dict[str, Any]:
    # The call is not over, so there is no file yet, which is told to whoever has the address.
    bot = await start_bot(world, world.callers["owner"], None)
    call: Any = SimpleNamespace(services=world.baobab.application.services)
    url = build_signed_url(call, "GET", f"/v1/ai/meetings/{bot['bot_id']}/content/recording", 900)
    return {**bot, "kind": "recording", **{name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}}


async def for_gateway_meetings_estimate(world: World, caller: Caller) -> dict[str, Any]:
    return {"durationMinutes": 60}
