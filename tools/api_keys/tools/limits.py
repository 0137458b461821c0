"""/api-keys/{key_id}: the limits of a key, and which of its calls wait for a person."""

from types import SimpleNamespace
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import select, update

from baobab.tools.api_keys.errors import KeyNotFound, NeverAsks
from baobab.tools.api_keys.rows import LISTED, describe_key, get_live_row
from baobab.tools.api_keys.schemas import KeyId, KeyName, ListedKey
from baobab.tools.api_keys.toolset import api_keys
from baobab.tools.core import OMITTED, AnyAccount, Audit, BadRequest, Call, Guard, Rest, Text
from baobab.tools.core.auth.callers import Limits
from baobab.tools.core.auth.key_limits import ToolsetNames, UnknownToolset, list_open_toolsets
from baobab.tools.core.auth.tables import api_keys as rows
from baobab.tools.core.effects import Policy
from baobab.tools.core.errors import MissingField, ToolNotFound
from baobab.tools.core.guard.proposals import Decisions

_MOST_ASKS = 200
AskedTool = Annotated[str, Text(100, pattern=r"^[a-z][a-z0-9_]*$"), Field(description="The name of a tool.")]


@api_keys.tool(
    "PATCH /api-keys/{key_id}",
    access=AnyAccount(),
    effect="write",
    raises=(KeyNotFound, MissingField, UnknownToolset),
    audit=Audit("api_key.update", resource="api_key"),
    guard=Guard(grants=True),
)
async def api_keys_update(
    call: Call,
    key_id: KeyId,
    name: KeyName | None = None,
    toolsets: ToolsetNames | None = OMITTED,
    read_only: bool | None = None,
    approval: Policy | None = None,
) -> ListedKey:
    """Rename a key or change its limits. Other fields stay. Takes effect within 2 s.

    name: what it is for, in a few words.
    toolsets: the toolsets that the key may use; null for all.
    read_only: whether it can only read.
    approval: the mildest effect that waits for a person; `none` for never.
    """
    row = await get_live_row(call, key_id)
    changes: dict[str, Any] = {"name": name, "read_only": read_only, "approval": approval}
    changes = {field: value for field, value in changes.items() if value is not None}
    if toolsets is not OMITTED:
        changes["toolsets"] = toolsets
    if not changes:
        raise MissingField("Nothing to change.", remediation="Send `name`, `toolsets`, `read_only` or `approval`.")
    return await _change(call, row, changes)


@api_keys.tool(
    "PUT /api-keys/{key_id}/asks/{tool_name}",
    access=AnyAccount(),
    effect="write",
    raises=(KeyNotFound, ToolNotFound, NeverAsks),
    audit=Audit("api_key.update", resource="api_key"),
    rest=Rest(examples={"ask": "never"}),
    guard=Guard(grants=True),
)
async def api_keys_ask(
    call: Call, key_id: KeyId, tool_name: AskedTool, ask: Literal["always", "never", "by_effect"]
) -> ListedKey:
    """Set whether a key's calls of one tool wait for a person. Takes effect within 2 s.

    Calls that wait, and now need no approval, are withdrawn: the key can make them again.

    tool_name: a tool that changes something, such as `kv_delete`.
    ask: `always`, `never`, or `by_effect`: as the key's `approval` says.
    """
    tool = call.registry.find(tool_name)
    if tool.effect == "read" and ask == "always":
        raise NeverAsks
    row = await get_live_row(call, key_id)
    # Two people may change the rules of one key at once.
    await call.hold(row.organisation_id)
    row = await get_live_row(call, key_id)
    asks = {name: rule for name, rule in (row.asks or {}).items() if name != tool_name}
    if ask != "by_effect":
        asks[tool_name] = ask
    if len(asks) > _MOST_ASKS:
        raise BadRequest(f"A key has rules for at most {_MOST_ASKS} tools.")
    return await _change(call, row, {"asks": asks})


async def _change(call: Call, row: Any, changes: dict[str, Any]) -> ListedKey:
    """Changes the limits of a key on every worker, and withdraws what it need not ask for any more."""
    # A budget does not decide which calls need approval.
    new_limits = Limits.of(SimpleNamespace(**{**row._asdict(), "has_budget": False, **changes})) or Limits()
    open_toolsets = list_open_toolsets(call.registry, new_limits.toolsets, asks=new_limits.asks)
    changes["toolsets"] = None if open_toolsets is None else sorted(open_toolsets)
    if "approval" in changes or "asks" in changes:
        await call.services.part(Decisions).withdraw_exempt(call, row.id, new_limits)
    await call.execute(update(rows).where(rows.c.id == row.id).values(**changes))
    await call.services.notices.publish(call.unit, "key", row.digest)
    await call.services.notices.publish(call.unit, "tools", f"key:{row.id}")
    call.audit.data |= {"prefix": row.prefix, **changes}
    changed_row: Any = (await call.execute(select(*LISTED).where(rows.c.id == row.id))).mappings().one()
    return describe_key(changed_row)
