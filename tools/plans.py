"""Plans: what an organisation's apps may use. `None` is no cap."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Caps of one plan, per app. Source: the contract's plan table and KV caps (document 4, A4, B5 and F1)."""

    name: str
    requests_per_minute: int | None
    kv_ops_per_second: int | None
    kv_bytes: int | None
    kv_keys: int | None


MB, GB = 2**20, 2**30

PLANS = {
    plan.name: plan
    for plan in (
        Plan("playground", 300, 50, 10 * MB, 100_000),
        Plan("launch", 3000, 1000, GB, 1_000_000),
        Plan("certified", 3000, 1000, GB, 1_000_000),
        Plan("enterprise", None, None, None, None),
    )
}
