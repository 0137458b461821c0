"""Tools that say which keys hold the app's own texts."""

from baobab.tools.core import AppId, Audit, Call, Guard, Rest, one_of
from baobab.tools.core.guard.own_prefixes import OwnPrefix, OwnPrefixes, list_prefixes, render_prefixes, set_prefix
from baobab.tools.core.patterns import literal_prefix
from baobab.tools.kv.access import Operator, rule_book
from baobab.tools.kv.errors import OpenToUsers
from baobab.tools.kv.own_keys import MARKED, forget_outside_keys
from baobab.tools.kv.tables import FREEZES, own_prefixes
from baobab.tools.kv.toolset import kv


@kv.tool("GET /_own_text", access=Operator(), effect="read")
async def kv_own_text_list(call: Call, app_id: AppId) -> OwnPrefixes:
    """List the beginnings of keys whose values are marked as the app's own text."""
    async with call.stores.database.reading() as connection:
        return render_prefixes(await list_prefixes(connection.execute, own_prefixes, app_id))


@kv.tool(
    "PUT /_own_text",
    access=Operator("admin", functions=False),
    effect="write",
    raises=(OpenToUsers,),
    audit=Audit("kv.own_text", resource="kv_prefix"),
    rest=Rest(examples={"prefix": "settings:", "own": True}),
    guard=Guard(widens={"own": one_of([True])}),
)
async def kv_own_text(call: Call, app_id: AppId, prefix: OwnPrefix, own: bool) -> OwnPrefixes:
    """Mark keys as the app's own text, or end that: a run that reads them has read no text from outside.

    Mark what only you and your programs write. A key that a user writes, or a run that has read text from outside,
    still counts as such from then on.

    own: whether the values of these keys are texts of those who run the app.
    """
    if own:
        for rule in (await rule_book(call)).rules:
            beginning = rule.pattern[: literal_prefix(rule.pattern)]
            if rule.write != "deny" and (beginning.startswith(prefix) or prefix.startswith(beginning)):
                raise OpenToUsers(details={"rule": rule.pattern})
    async with FREEZES.writing(call) as unit:
        await set_prefix(call, unit.execute, own_prefixes, prefix, own=own)
        if own:
            await forget_outside_keys(call, unit.execute, prefix)
        rows = await list_prefixes(unit.execute, own_prefixes, app_id)
    await call.services.notices.publish(call.unit, MARKED, app_id)
    return render_prefixes(rows)
