"""Tools that read and change expose rules."""

import json
from typing import Annotated

from pydantic import Field
from sqlalchemy import delete, insert, select

from baobab.tools.core import AppId, Audit, BadRequest, Call, Guard, Rest
from baobab.tools.core.patterns import Pattern, names_owner
from baobab.tools.kv.access import Operator
from baobab.tools.kv.errors import ExposeConflict
from baobab.tools.kv.keys import Key
from baobab.tools.kv.rules import NOTICE, Level, Rule, RuleBook, Verb
from baobab.tools.kv.schemas import ExposeRules, KeyAccess, NewRule, RuleDeleted
from baobab.tools.kv.tables import rules_table
from baobab.tools.kv.toolset import kv

MAX_RULES = 500

_CHANGED = Audit("kv.expose.update", resource="kv_rule")
_REPLACE_BODY = 2**20


@kv.tool(
    "GET /_expose",
    access=Operator(),
    effect="read",
)
async def kv_expose_list(call: Call, app_id: AppId, key: Key | None = None) -> ExposeRules:
    """List the rules that expose keys to end users, in the order they were declared.

    key: also tell who may read and write this key, and by which rule.
    """
    query = select(rules_table).where(rules_table.c.app_id == app_id).order_by(rules_table.c.position)
    rows = (await call.execute(query)).all()
    answer: ExposeRules = {
        "rules": [{"pattern": r.pattern, "read": r.read, "write": r.write, "order": r.position} for r in rows]
    }
    book = RuleBook(Rule(row.pattern, row.read, row.write, row.position) for row in rows)
    warnings = [
        f"{json.dumps(rule.pattern)} keeps {verb} to the owner, and {json.dumps(other.pattern)} opens the same keys to "
        f"{'anybody' if other.level(verb) == 'public' else 'every user'}: close them with a rule at `deny`."
        for rule, verb, other in book.find_open_beside_owners()
    ]
    if warnings:
        answer["warnings"] = warnings
    if key is not None:
        answer["access"] = {"read": _explain(book, key, "read"), "write": _explain(book, key, "write")}
    return answer


def _explain(book: RuleBook, key: str, verb: Verb) -> KeyAccess:
    access = book.explain(key, verb)
    return {"level": access.level, "rule": access.rule, "owner_rule": access.owner_rule}


@kv.tool(
    "PUT /_expose/{pattern:path}",
    access=Operator("admin"),
    effect="write",
    raises=(ExposeConflict,),
    audit=_CHANGED,
    rest=Rest(status=204, examples={"read": "owner", "write": "owner"}),
    guard=Guard(
        # With a public level, the API key could then do the same without approval.
        grants=True
    ),
)
async def kv_expose(call: Call, app_id: AppId, pattern: Pattern, read: Level, write: Level) -> None:
    """Expose the keys that match a pattern to end users.

    If several rules match a key, the one with the longest literal prefix decides; among equals, the first.

    read: who may read: `public` anybody, `authed` signed-in users, `owner` the user whom the pattern names, `deny`
      nobody.
    write: who may write; the same values.
    """
    _check_owner(pattern, read, write)
    rows = (await call.execute(select(rules_table).where(rules_table.c.app_id == app_id))).all()
    existing = next((row for row in rows if row.pattern == pattern), None)
    if existing is not None:
        if (existing.read, existing.write) == (read, write):
            return
        rule = {"pattern": pattern, "read": existing.read, "write": existing.write, "order": existing.position}
        raise ExposeConflict(details={"existing": rule})
    if len(rows) >= MAX_RULES:
        raise BadRequest(f"An app has at most {MAX_RULES} rules.", remediation="Write one rule with a wider pattern.")
    position = max((row.position for row in rows), default=-1) + 1
    row = {"app_id": app_id, "pattern": pattern, "read": read, "write": write, "position": position}
    await call.execute(insert(rules_table), row)
    await publish_change(call)
    call.audit.resource_id = pattern[:200]
    call.audit.data |= {"read": read, "write": write}


async def _preview_replace(call: Call, app_id: AppId, rules: list[NewRule]) -> str:
    before = {(r["pattern"], r["read"], r["write"]) for r in (await kv_expose_list(call, app_id))["rules"]}
    after = {(rule["pattern"], _level(rule["read"]), _level(rule["write"])) for rule in rules}
    removed_rules, new_rules = sorted(before - after), sorted(after - before)
    if not removed_rules and not new_rules:
        return "The rules would stay as they are, but for their order."
    return "\n".join(
        [
            *(f"gone: {_describe_rule(*rule)}" for rule in removed_rules),
            *(f"new: {_describe_rule(*rule)}" for rule in new_rules),
        ]
    )


async def _preview_unexpose(call: Call, app_id: AppId, pattern: Pattern) -> str:
    rules = [rule for rule in (await kv_expose_list(call, app_id))["rules"] if rule["pattern"] == pattern]
    if not rules:
        return "There is no rule of this pattern: nothing would change."
    return f"gone: {_describe_rule(pattern, rules[0]['read'], rules[0]['write'])}"


@kv.tool(
    "PUT /_expose",
    access=Operator("admin"),
    effect="destructive",
    audit=_CHANGED,
    rest=Rest(
        status=204,
        max_body=_REPLACE_BODY,
        examples={"rules": [{"pattern": "public:**", "read": "public", "write": "deny"}]},
    ),
    guard=Guard(
        # With a public level, the API key could then do the same without approval.
        grants=True,
        preview=_preview_replace,
    ),
)
async def kv_expose_replace(
    call: Call, app_id: AppId, rules: Annotated[list[NewRule], Field(max_length=MAX_RULES)]
) -> None:
    """Replace all expose rules with these, in this order.

    rules: each with a pattern and the levels for read and write; true is `public`, false is `deny`.
    """
    rows = []
    for position, rule in enumerate(rules):
        read, write = _level(rule["read"]), _level(rule["write"])
        _check_owner(rule["pattern"], read, write)
        rows.append({"app_id": app_id, "pattern": rule["pattern"], "read": read, "write": write, "position": position})
    if len({row["pattern"] for row in rows}) < len(rows):
        raise BadRequest("`rules` has the same pattern twice.", remediation="Give each pattern once.")
    await call.execute(delete(rules_table).where(rules_table.c.app_id == app_id))
    if rows:
        await call.execute(insert(rules_table), rows)
    await publish_change(call)
    call.audit.data["rules"] = len(rows)


@kv.tool(
    "DELETE /_expose/{pattern:path}",
    access=Operator("admin"),
    effect="destructive",
    audit=_CHANGED,
    guard=Guard(
        # A rule that denies may keep a broader rule from opening the keys.
        grants=True,
        preview=_preview_unexpose,
    ),
)
async def kv_unexpose(call: Call, app_id: AppId, pattern: Pattern) -> RuleDeleted:
    """Delete the rule of a pattern. `deleted` is 0 if there was none."""
    rule = (rules_table.c.app_id == app_id, rules_table.c.pattern == pattern)
    result = await call.execute(delete(rules_table).where(*rule))
    await publish_change(call)
    call.audit.resource_id = pattern[:200]
    return {"deleted": result.rowcount}


async def publish_change(call: Call) -> None:
    await call.services.notices.publish(call.unit, NOTICE, call.require_app().id)


def _describe_rule(pattern: str, read: Level, write: Level) -> str:
    # As JSON, so that a pattern cannot look like a line of this text.
    return f"{json.dumps(pattern)} (read {read}, write {write})"


def _level(level: Level | bool) -> Level:
    if isinstance(level, bool):
        return "public" if level else "deny"
    return level


def _check_owner(pattern: str, *levels: Level) -> None:
    if "owner" in levels and not names_owner(pattern):
        raise BadRequest(
            "A rule with the level `owner` must name its owner in the pattern.",
            remediation="Put {user.id} or {user.role} into the pattern, such as user:{user.id}:**.",
        )
