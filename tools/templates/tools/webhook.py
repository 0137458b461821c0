"""/v1/{app_id}/config/clone-webhook: who is told when an app was cloned."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import delete

from baobab.runtime.net.addresses import EgressError, Target
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppId, AppOwner, Audit, BadRequest, Call, Guard, Rest, Secret, Text
from baobab.tools.core.errors import MissingField
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.templates.schemas import CloneWebhookSet
from baobab.tools.templates.tables import clone_webhooks, seal_context
from baobab.tools.templates.toolset import clones

_EXAMPLES = {
    "webhook_url": "https://example.com/clones",
    "webhook_secret": "16 to 256 characters",
}


@clones.tool(
    "PATCH /config/clone-webhook",
    access=AppOwner("admin"),
    effect="write",
    raises=(MissingField,),
    audit=Audit("app.config.clone_webhook", resource="app"),
    rest=Rest(examples=_EXAMPLES),
    guard=Guard(widens={"webhook_url": whatever_is_given}),
)
async def config_clone_webhook(
    call: Call,
    app_id: AppId,
    webhook_url: Annotated[str, Text(2000, min_length=1), Field(description="Where each clone is told.")] | None = None,
    webhook_secret: Annotated[str, Secret(256, min_length=16)] | None = None,
    clear: bool = False,
) -> CloneWebhookSet:
    """Be told of each clone of an app: a signed webhook when it is completed, three times at most.

    The header `X-Platform-Signature` is `sha256=` and the HMAC-SHA256 of the body by the secret, in hexadecimal.

    webhook_secret: signs the webhook; 16 to 256 characters of your own.
    clear: true to end it, without the other fields.
    """
    call.audit.resource_id = app_id
    if clear:
        if webhook_url is not None or webhook_secret is not None:
            raise BadRequest("`clear` goes without the other fields.")
        await call.execute(delete(clone_webhooks).where(clone_webhooks.c.id == app_id))
        return {"message": "Nobody is told of clones any more.", "app_id": app_id, "webhook_url": None}
    if webhook_url is None or webhook_secret is None:
        raise MissingField("Send `webhook_url` and `webhook_secret`, or `clear: true`.")
    try:
        Target.parse(webhook_url, https_only=False)
    except (EgressError, ValueError) as exc:
        reason = exc.message if isinstance(exc, EgressError) else "it cannot be read."
        raise BadRequest(f"`webhook_url` is not an address that can be called: {reason}") from exc
    secret = call.services.vault.seal(str(webhook_secret).encode(), seal_context(clone_webhooks, "secret", app_id))
    values = {"url": webhook_url, "secret": secret, "updated_at": call.now}
    insertion = build_upsert(call.unit.database.dialect, clone_webhooks).values(id=app_id, **values)
    await call.execute(insertion.on_conflict_do_update(index_elements=["id"], set_=values))
    return {"message": "Each clone is told from now on.", "app_id": app_id, "webhook_url": webhook_url}
