"""/v1/{app_id}/realtime/channels: who may join channels, send to them, and see who is present."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from baobab.storage.sql.statements import Statements
from baobab.tools.core import AppId, AppOwner, Audit, BadRequest, Call, Guard, Rest
from baobab.tools.core.patterns import names_owner
from baobab.tools.data.migration.changes import change_catalogue
from baobab.tools.data.rows.transactions import find_catalogue
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schema.channels import ChannelRule
from baobab.tools.data.schemas import ChannelRuleFields, ChannelRules
from baobab.tools.data.toolset import data

_MOST_RULES = 100


@data.tool(
    "PUT /realtime/channels",
    access=AppOwner("admin"),
    effect="destructive",
    audit=Audit("realtime.channels"),
    rest=Rest(examples={"rules": [{"pattern": "room:{user.id}", "join": "owner", "send": "owner"}]}),
    guard=Guard(grants=True),
)
async def realtime_channels_replace(
    call: Call, app_id: AppId, rules: Annotated[list[ChannelRuleFields], Field(max_length=_MOST_RULES)]
) -> ChannelRules:
    """Replace the rules for channels: who may join them, and send to them.

    With any rule, channels that none matches are closed to users and visitors. The presence of the whole app is the
    channel `presence`.

    rules: each with a pattern and a level for `join` and `send`; the most specific pattern decides.
    """
    new_rules = tuple(ChannelRule(**rule) for rule in rules)
    if len({rule.pattern for rule in new_rules}) < len(new_rules):
        raise BadRequest("`rules` has the same pattern twice.", remediation="Give each pattern once.")
    for rule in new_rules:
        if "owner" in (rule.join, rule.send) and not names_owner(rule.pattern):
            raise BadRequest(
                f"`{rule.pattern}` names no owner.",
                remediation="Write {user.id} or {user.role} in the pattern, or use `authed`.",
            )

    def change(statements: Statements, catalogue: Catalogue) -> Catalogue:
        del statements
        return replace(catalogue, channels=new_rules)

    await change_catalogue(call, change)
    call.audit.data["rules"] = len(new_rules)
    return {"rules": rules}


@data.tool(
    "GET /realtime/channels",
    access=AppOwner(),
    effect="read",
)
async def realtime_channels_list(call: Call, app_id: AppId) -> ChannelRules:
    """List the rules for channels. Without any, users join and send to all channels, and visitors join them."""
    catalogue = await find_catalogue(call)
    return {"rules": [{"pattern": rule.pattern, "join": rule.join, "send": rule.send} for rule in catalogue.channels]}
