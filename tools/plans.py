"""Plans: what an organisation and its apps may use. `None` is no cap."""

from dataclasses import dataclass

from baobab.tools.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Plan:
    """Caps of one plan. Those of requests and keys and values are the contract's (document 4, A4, B5 and F1).

    apps: of one organisation. The others are for each app; agent_bytes are those of its agents' graphs.
    """

    name: str
    requests_per_minute: int | None
    kv_ops_per_second: int | None
    kv_bytes: int | None
    kv_keys: int | None
    apps: int | None = None
    agents: int | None = None
    agent_bytes: int | None = None


MB, GB = 2**20, 2**30

PLANS = {
    plan.name: plan
    for plan in (
        Plan("playground", 300, 50, 10 * MB, 100_000, apps=25, agents=50, agent_bytes=10 * MB),
        Plan("launch", 3000, 1000, GB, 1_000_000, apps=100, agents=500, agent_bytes=100 * MB),
        Plan("certified", 3000, 1000, GB, 1_000_000, apps=250, agents=500, agent_bytes=100 * MB),
        Plan("enterprise", None, None, None, None),
    )
}


class PlanLimitReached(Forbidden):
    code = "PLAN_LIMIT_REACHED"
    summary = "The plan of the organisation has room for no more."
    remediation = "Remove what is no longer needed, or have the operator give the organisation another plan."


def require_room(what: str, plan: Plan, cap: int | None, used: int, more: int = 1) -> None:
    """Raise PlanLimitReached where `more` of something do not fit into the cap.

    used: counted in the transaction that adds them, so that callers who come at once do not pass the cap together.
    """
    if cap is not None and used + more > cap:
        details = {"plan": plan.name, "what": what, "limit": cap, "current": used}
        raise PlanLimitReached(f"The plan {plan.name} has room for {cap} {what}; there are {used}.", details=details)
