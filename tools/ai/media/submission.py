"""Submits a request for images or a video: checks it, reserves its price, and stores it with the job that makes it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal
from uuid import UUID, uuid5

from sqlalchemy import select

from baobab.runtime.gateway.media.media import Media
from baobab.runtime.gateway.media.model import AcceptedFields, MediaRequest
from baobab.runtime.gateway.model import Model, Price
from baobab.storage.sql.tables import build_upsert
from baobab.tools.ai import settings
from baobab.tools.ai.errors import conceal
from baobab.tools.ai.media.errors import UnsupportedParameter
from baobab.tools.ai.media.references import folded_names, merge_images, urls
from baobab.tools.ai.media.schemas import Submitted
from baobab.tools.ai.media.submitters import submitter
from baobab.tools.ai.media.tables import FREEZES, generation_jobs, is_job
from baobab.tools.ai.metered_call import payer_of
from baobab.tools.ai.model_choice import select_models
from baobab.tools.core import Call, EndUser
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted, Reservation
from baobab.tools.core.limits.money import MOST

Kind = Literal["image", "video"]

JOB = "media_generate"
_HELD_SECONDS = 3600.0
"""How long credits are reserved at most; a job that takes longer is charged all the same."""
_APPROVED = UUID("6a2f0c1e-5d0b-4c53-9d0e-0b1f6f1f8a57")
_URLS = ("mask", "input_references")
"""The fields beside input_images that are URLs, or lists of them."""


async def submit(
    call: Call,
    app_id: str,
    kind: Kind,
    name: str,
    prompt: str,
    fields: Mapping[str, Any],
    provider: Mapping[str, Any] | None,
) -> Submitted:
    """Submits a job. fields: all other fields of the request; None for an unknown field that was sent as null."""
    # The id is derived from the approval, so that a second attempt finds the job of the first.
    job_id = str(uuid5(_APPROVED, call.approved_attempt.id)) if call.approved_attempt else call.services.ids.uuid()
    receipt: Submitted = {
        "job_id": job_id,
        "status": "pending",
        "polling_url": job_url(call, kind, app_id, job_id),
    }
    if call.approved_attempt is not None:
        # What it costs is reserved, even where the agent's budget has no room for it any more.
        async with call.reading() as execute:
            if (await execute(select(generation_jobs.c.id).where(is_job(app_id, job_id)))).first() is not None:
                return receipt
    model = select_models(call, name, await settings.get_app_settings(call, app_id), kind)[0]
    media = call.services.part(Media)
    request = build_request(media.accepted_fields(model), prompt, fields, provider or {})
    max_charge = compute_charge(
        call.services.options.ai_markup, media.get_price(model, request, media.count_units(model, request))
    )
    reservation = await _reserve_credits(call, kind, max_charge)
    is_stored = False

    def mark_kept() -> None:
        nonlocal is_stored
        is_stored = True

    try:
        await _insert_job(call, app_id, job_id, kind, model, request, reservation, mark_kept)
    finally:
        # Not released if the caller is cancelled after the commit, because the job then exists.
        if not is_stored:
            await call.credits.release(reservation)
    call.audit.resource_id = model.id
    return receipt


def build_request(
    accepted_fields: AcceptedFields, prompt: str, fields: Mapping[str, Any], provider: Mapping[str, Any]
) -> MediaRequest:
    """Builds the request for the model. Raises UnsupportedParameter or BadReference."""
    unsupported_names = [name for name in folded_names(fields) if name not in accepted_fields.top_level]
    unsupported_names += [f"provider.{name}" for name in provider if name not in accepted_fields.provider]
    if unsupported_names:
        raise UnsupportedParameter(
            f"The model does not take {', '.join(f'`{name[:60]}`' for name in unsupported_names[:10])}.",
            details={
                "supported_top_level": sorted(accepted_fields.top_level),
                "supported_provider": sorted(accepted_fields.provider),
            },
        )
    parameters = merge_images(fields)
    for name in _URLS:
        if name in parameters:
            image_urls = urls(name, parameters[name])
            parameters[name] = image_urls if isinstance(parameters[name], list) else image_urls[0]
    for index, frame in enumerate(parameters.get("frame_images", ())):
        urls(f"frame_images.{index}.url", frame["url"])
    return MediaRequest(prompt, parameters, provider)


def compute_charge(markup: int, cost: int) -> int:
    """Returns the charge for a provider's cost, in nano-dollars."""
    return min(Price(0, 0, unit=cost).marked_up(markup).unit or 0, MOST)


def job_url(call: Call, kind: str, app_id: str, job_id: str) -> str:
    """Returns the URL at which a job is polled."""
    return f"{call.services.options.base_url}/v1/{app_id}/{kind}s/completions/{job_id}"


async def _reserve_credits(call: Call, kind: Kind, amount: int) -> Reservation:
    payer = payer_of(call)
    try:
        return await call.credits.reserve(
            payer.organisation_id,
            amount,
            app_id=payer.app_id,
            key_id=payer.key_id,
            spender=call.context.spender,
            purpose=f"ai.{kind}",
            ttl_seconds=_HELD_SECONDS,
        )
    except (CreditsExhausted, BudgetExhausted) as exc:
        if isinstance(call.caller, EndUser):
            conceal(exc)
        raise


async def _insert_job(
    call: Call,
    app_id: str,
    job_id: str,
    kind: Kind,
    model: Model,
    request: MediaRequest,
    reservation: Reservation,
    mark_kept: Callable[[], None],
) -> None:
    """Inserts the row and the durable job in one transaction, and calls `mark_kept` after it, also if an earlier
    attempt inserted them at this moment: the reservation is then the same.

    Raises AppMigrating.
    """
    worker = f"{JOB}:{call.services.ids.uuid()}"
    row = {
        "id": job_id,
        "app_id": app_id,
        "organisation_id": reservation.organisation_id,
        "kind": kind,
        "model": model.id,
        "submitter": submitter(call.caller),
        "status": "pending",
        "request": {
            "prompt": request.prompt,
            "parameters": dict(request.parameters),
            "provider": dict(request.provider),
        },
        "tries": 0,
        "worker": worker,
        "reservation_id": reservation.id,
        "reserved": reservation.amount,
        "created_at": call.now,
        "polled_at": call.now,
    }
    # A transaction of its own, because the app's region may have another database than the call.
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        insertion = build_upsert(unit.database.dialect, generation_jobs).values(row).on_conflict_do_nothing()
        if (await unit.execute(insertion)).rowcount:
            arguments = {"app_id": app_id, "generation_id": job_id}
            tenant = call.require_app().organisation_id
            await call.services.jobs.enqueue(unit, JOB, arguments, job_id=worker, tenant=tenant)
        unit.after_commit(mark_kept)
