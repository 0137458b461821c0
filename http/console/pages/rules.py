"""/console/substrate/rules: attention rules, what they would propose now, and the results of their earlier checks."""

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.substrate_page import ask, lead_to, read_substrate
from baobab.http.console.visit import Visit

PATH = "/substrate/rules"
_SHOWN = 50
_OF_RULE = (
    *("name", "description", "trigger_cron", "condition_mode", "condition", "action_capability"),
    *("action_payload_template", "enabled", "max_fires_per_day"),
)


async def show_rules(visit: Visit) -> Context:
    return {**await read_substrate(visit, PATH), "rows": (await ask(visit, "substrate_rules"))["rules"]}


async def show_rule(visit: Visit) -> Context:
    rule_id = visit.parts["rule"]
    rule = await ask(visit, "substrate_rule", rule_id=rule_id)
    rule_fields = {name: rule[name] for name in _OF_RULE if rule[name] is not None}
    return {
        **await read_substrate(visit, PATH),
        "title": rule["name"],
        "rule": rule,
        "preview": await ask(visit, "substrate_rule_preview", **rule_fields),
        "firings": (await ask(visit, "substrate_rule_firings", rule_id=rule_id, limit=_SHOWN))["firings"],
    }


async def enable(visit: Visit) -> str:
    await ask(visit, "substrate_rule_enable", rule_id=visit.parts["rule"])
    return lead_to(visit, f"{PATH}/{visit.parts['rule']}")


async def disable(visit: Visit) -> str:
    await ask(visit, "substrate_rule_disable", rule_id=visit.parts["rule"])
    return lead_to(visit, f"{PATH}/{visit.parts['rule']}")


PAGES = (
    Page(PATH, "Rules", "rules.html", show_rules),
    Page(PATH + "/{rule}", "Rule", "rule.html", show_rule),
)
FORMS = (Form(PATH + "/{rule}/enable", enable), Form(PATH + "/{rule}/disable", disable))
