"""/api-keys: the keys that programs and agents carry."""

import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import bindparam, insert, select
from sqlalchemy.exc import IntegrityError

from baobab.tools.api_keys import scopes as scoping
from baobab.tools.api_keys.errors import KeyNotFound, KeyScopesUnclear
from baobab.tools.api_keys.rows import LISTED, describe_key, find_role, get_live_row, sees_all
from baobab.tools.api_keys.schemas import CreatedKey, KeyBudget, KeyId, KeyName, Keys, Revoked
from baobab.tools.api_keys.toolset import api_keys
from baobab.tools.core import (
    AnyAccount,
    AppId,
    AppNotFound,
    Audit,
    BadRequest,
    Call,
    Forbidden,
    Guard,
    NotFound,
    Rest,
    Role,
    Text,
    Uuid,
    require_role,
)
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.callers import Limits
from baobab.tools.core.auth.key_limits import ToolsetNames, UnknownToolset, list_open_toolsets, narrow_limits
from baobab.tools.core.auth.tables import api_keys as rows
from baobab.tools.core.effects import Policy
from baobab.tools.core.errors import KeyLimited, MissingField
from baobab.tools.core.limits.money import dollars
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.core.types import Moment

_MOST_SCOPES = 10
OrganizationId = Annotated[Uuid, Field(description="One of your organisations; the credential's own by default.")]
ScopeSought = Annotated[str, Text(60, min_length=1)]
AdditionalScopes = Annotated[list[scoping.Additional], Field(max_length=_MOST_SCOPES)]
LegacyScopes = Annotated[list[scoping.Legacy], Field(min_length=1, max_length=_MOST_SCOPES)]
_LIST = (
    select(*LISTED)
    .where(rows.c.organisation_id == bindparam("organisation"), rows.c.revoked_at.is_(None))
    .order_by(rows.c.created_at.desc(), rows.c.id)
)
_LIST_OF_ACCOUNT = _LIST.where(rows.c.account_id == bindparam("account"))


@api_keys.tool(
    "POST /api-keys",
    access=AnyAccount(),
    effect="write",
    raises=(MissingField, KeyScopesUnclear, AppNotFound, NotFound, PlanLimitReached, UnknownToolset),
    audit=Audit("api_key.create", action="create", resource="api_key"),
    rest=Rest(
        status=201,
        examples={"name": "todo backend", "key_scope": "app", "target_app_id": "app_1a2b3c4d5e6f"},
        further_names={"id": "key_id", "keyId": "key_id"},
    ),
)
async def api_keys_create(
    call: Call,
    name: KeyName,
    key_scope: scoping.KeyScope | None = None,
    target_app_id: AppId | None = None,
    additional_scopes: AdditionalScopes | None = None,
    scope: scoping.Reach | None = None,
    organization_id: OrganizationId | None = None,
    scopes: LegacyScopes | None = None,
    toolsets: ToolsetNames | None = None,
    read_only: bool = False,
    approval: Policy = "none",
    ends_at: Moment | None = None,
    budget: KeyBudget | None = None,
) -> CreatedKey:
    """Create an API key. Only this answer shows it; send it as `Authorization: Bearer <key>`.

    name: what the key is for; lists show it.
    key_scope: `account` (the default) can do what the account can do in its organisation; `app` can do everything
      within one app, and only an admin or owner of the app's organisation can make it.
    target_app_id: the app of an `app` key.
    additional_scopes: `ai:gateway` changes nothing: every key may use the gateway (op:gateway_chat), and an `app` key
      does so under its app's settings. The substrate needs a key of its own.
    scope: `substrate` makes a substrate key (`bb_sub_`), which opens nothing else; `app` is any other key.
    organization_id: the organisation the key is pinned to; for an app key it is the app's.
    scopes: the older form, instead of all but the name: `*` for an account key, `ai:gateway` for a key that opens the
      AI gateway only, `substrate` for a substrate key.
    toolsets: the toolsets that the key may use, such as `kv`; all by default.
    read_only: whether the key can only read.
    approval: the mildest effect for which a call waits for a person: `destructive`, `external` (also calls that
      reach outside the server), `write` (all but reads), or `none`. A key never makes one with fewer limits than
      its own, and a key with a budget makes none.
    ends_at: when the key ends for good, with the keys that it made; left out, never. It cannot be postponed.
    budget: what the key may spend on models in each day or month; only admins and owners can set one.
      op:billing_set_budget changes it later.
    """
    if call.caller.limits is not None and call.caller.limits.has_budget:
        # The new key's spending would not count against the budget, which belongs to one key.
        raise KeyLimited(
            "A key with a budget makes no other keys.",
            remediation="Sign in to make the key, or use a key that has no budget.",
        )
    if ends_at is not None and ends_at <= call.now:
        raise BadRequest("`ends_at` is in the past.", remediation="Send a time in the future, or leave it out.")
    limits = _limits(call, Limits(read_only=read_only, approval=approval, ends_at=ends_at), toolsets)
    key_scopes = scoping.build_scopes(key_scope, target_app_id, additional_scopes or [], scopes, scope)
    if target_app_id is not None:
        organisation = await _app_organisation(call, target_app_id, organization_id)
        required_role: Role = "admin"
    else:
        organisation = organization_id or call.account.organisation_id
        required_role = "member"
    role = await find_role(call, organisation)
    if role is None:
        raise (
            NotFound("There is no such organisation.") if target_app_id is None else Forbidden("That app is not yours.")
        )
    require_role(role, required_role)
    await keys.require_room(call, organisation)
    key = keys.plaintext(call.services.ids, scoping.scope_kind(key_scopes))
    row = keys.key_row(
        call.services,
        key,
        name,
        key_scopes,
        organisation_id=organisation,
        account_id=call.account.account_id,
        app_id=target_app_id,
        limits=limits,
        made_by=call.account.key_id,
    )
    try:
        await call.execute(insert(rows), row)
    except IntegrityError as exc:
        # The app was deleted after it was looked up.
        raise AppNotFound from exc
    if budget is not None:
        await call.invoke(
            "billing_set_budget",
            subject="key",
            subject_id=row["id"],
            period=budget["period"],
            most_usd=dollars(budget["most_usd"]),
            org_id=organisation,
        )
    call.audit.resource_id, call.audit.organisation_id = row["id"], organisation
    call.audit.data |= {"prefix": row["prefix"], "scopes": key_scopes}
    if row["ends_at"] is not None:
        call.audit.data["ends_at"] = row["ends_at"].isoformat()
    return {
        "key": key,
        "key_id": row["id"],
        "prefix": row["prefix"],
        "name": name,
        "scopes": key_scopes,
        "toolsets": row["toolsets"],
        "read_only": row["read_only"],
        "approval": row["approval"],
        "ends_at": row["ends_at"],
        "created_at": row["created_at"],
    }


@api_keys.tool(
    "GET /api-keys",
    access=AnyAccount(),
    effect="read",
    raises=(NotFound,),
)
async def api_keys_list(
    call: Call, scope: ScopeSought | None = None, organization_id: OrganizationId | None = None
) -> Keys:
    """List live API keys by their prefix: your own; admins and owners see all of their organisation's.

    scope: only keys with this scope, such as `*`, `ai:gateway`, `substrate` or `app:app_1a2b3c4d5e6f`; `account` and
      `app` list all keys of that kind.
    """
    organisation = organization_id or call.account.organisation_id
    role = await find_role(call, organisation)
    if role is None:
        raise NotFound("There is no such organisation.")
    query, values = _LIST, {"organisation": organisation}
    if not sees_all(role):
        query, values = _LIST_OF_ACCOUNT, {**values, "account": call.account.account_id}
    key_rows: Any = (await call.execute(query, values)).mappings()
    return {"keys": [describe_key(row) for row in key_rows if scope is None or scoping.has_scope(row["scopes"], scope)]}


async def _preview_revoke(call: Call, key_id: KeyId, keep_made: bool) -> str:
    row = await get_live_row(call, key_id)
    last_use = f"last used {row.last_used_at:%Y-%m-%d %H:%M} UTC" if row.last_used_at else "never used"
    summary = f"It would revoke the key {json.dumps(row.name)} ({row.prefix}…), {last_use}"
    count = await keys.count_made(call, key_id)
    if keep_made:
        return f"{summary}, and leave the {count} live keys that were made with it."
    return f"{summary}, with the {count} live keys that were made with it and its open invitations."


@api_keys.tool(
    "DELETE /api-keys/{key_id}",
    access=AnyAccount(),
    effect="destructive",
    raises=(KeyNotFound,),
    audit=Audit("api_key.revoke", action="delete", resource="api_key"),
    guard=Guard(preview=_preview_revoke),
)
async def api_keys_revoke(call: Call, key_id: KeyId, keep_made: bool = False) -> Revoked:
    """Revoke an API key for good: your own, or as admin or owner any of the organisation's. Takes effect within 2 s.

    This also revokes what the key handed out: the keys that it made, and those that these made; invitations that nobody
    has accepted; a function key that it was shown. Other changes that it made stay.

    keep_made: revoke this key only, and keep what it handed out valid.
    """
    row = await get_live_row(call, key_id)
    revoked_count = await keys.revoke(call, rows.c.id == key_id, keep_made=keep_made)
    call.audit.data |= {"prefix": row.prefix, "keys_revoked": revoked_count}
    return {"revoked": True, "keys_revoked": revoked_count}


def _limits(call: Call, requested_limits: Limits, toolsets: list[str] | None) -> Limits:
    # Check all requested toolsets first, because narrowing drops unknown ones.
    requested_limits = replace(requested_limits, toolsets=list_open_toolsets(call.registry, toolsets, asks=False))
    narrowed_limits = narrow_limits(requested_limits, call.caller.limits)
    return replace(
        narrowed_limits, toolsets=list_open_toolsets(call.registry, narrowed_limits.toolsets, asks=narrowed_limits.asks)
    )


async def _app_organisation(call: Call, app_id: str, organisation_id: str | None) -> str:
    app = await call.services.directory.app(app_id)
    if organisation_id is not None and organisation_id != app.organisation_id:
        raise KeyScopesUnclear("The app belongs to another organisation than `organization_id`.")
    call.audit.data["app_id"] = app.id
    return app.organisation_id
