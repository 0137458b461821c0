"""Plans: what an organisation and its apps may use. `None` is no cap."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Caps of one plan. Those of apps, requests, keys and values are fixed by the API's contract.

    monthly_users: users of an app who join or sign in within a month. function_invocations: in a month.
    file_bytes: of the files of all apps of one organisation in a region. table_bytes: of the rows of an app's tables.
    apps, api_keys, model_servers, audit_rows, and memory_bytes of its substrate: of one organisation. The others are
    for each app; agent_bytes are those of its agents' graphs, deployments those kept of its site, bandwidth_bytes what
    its site may send in a month, and custom_domains those that it may add.
    """

    name: str
    requests_per_minute: int | None
    kv_ops_per_second: int | None
    kv_bytes: int | None
    kv_keys: int | None
    file_bytes: int | None = None
    table_bytes: int | None = None
    apps: int | None = None
    monthly_users: int | None = None
    agents: int | None = None
    agent_bytes: int | None = None
    tool_servers: int | None = None
    api_keys: int | None = None
    model_servers: int | None = None
    audit_rows: int | None = None
    memory_bytes: int | None = None
    function_invocations: int | None = None
    deployments: int | None = None
    bandwidth_bytes: int | None = None
    custom_domains: int | None = None


MB, GB = 2**20, 2**30

PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            "playground",
            requests_per_minute=300,
            kv_ops_per_second=50,
            kv_bytes=10 * MB,
            kv_keys=100_000,
            file_bytes=GB,
            table_bytes=512 * MB,
            apps=1,
            monthly_users=10_000,
            agents=50,
            agent_bytes=10 * MB,
            tool_servers=20,
            api_keys=100,
            model_servers=10,
            audit_rows=10_000,
            memory_bytes=100 * MB,
            function_invocations=50_000,
            deployments=2,
            bandwidth_bytes=5 * GB,
            custom_domains=0,
        ),
        Plan(
            "launch",
            requests_per_minute=3000,
            kv_ops_per_second=1000,
            kv_bytes=GB,
            kv_keys=1_000_000,
            file_bytes=50 * GB,
            table_bytes=8 * GB,
            apps=3,
            monthly_users=50_000,
            agents=500,
            agent_bytes=100 * MB,
            tool_servers=50,
            api_keys=500,
            model_servers=20,
            audit_rows=100_000,
            memory_bytes=2 * GB,
            function_invocations=500_000,
            deployments=10,
            bandwidth_bytes=100 * GB,
            custom_domains=10,
        ),
        Plan(
            "certified",
            requests_per_minute=3000,
            kv_ops_per_second=1000,
            kv_bytes=GB,
            kv_keys=1_000_000,
            file_bytes=100 * GB,
            table_bytes=16 * GB,
            apps=10,
            monthly_users=100_000,
            agents=500,
            agent_bytes=100 * MB,
            tool_servers=50,
            api_keys=1000,
            model_servers=50,
            audit_rows=300_000,
            memory_bytes=4 * GB,
            function_invocations=1_000_000,
            deployments=25,
            bandwidth_bytes=250 * GB,
            custom_domains=50,
        ),
        Plan("enterprise", None, None, None, None),
    )
}
