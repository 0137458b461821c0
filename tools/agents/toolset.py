"""The toolset of agents."""

from baobab.runtime.agents.job_kinds import RUN_ENDED, RUN_PAUSED, RUN_STARTED
from baobab.tools.agents.clones import CLONES
from baobab.tools.agents.data import APP_TABLES, stop_runs
from baobab.tools.agents.errors import ENVELOPE
from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_events import AppEvent

_RUN = {"run_id": "5b2f7c9e-0000-4000-8000-000000000000", "agent": "helper"}
_APPROVALS = [{"approval_id": "appr_0a1b2c3d", "expires_at": "2027-01-16T08:00:00+00:00"}]

agents = Toolset(
    "agents",
    "Agents of an app: graphs of models and tools, their runs, and the decisions that those wait for.",
    base="/v1/{app_id}",
    envelope=ENVELOPE,
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=CLONES,
    events=(
        AppEvent("run.started", RUN_STARTED, "A run of an agent was started.", _RUN, "run_id"),
        AppEvent("run.paused", RUN_PAUSED, "A run waits for a person.", {**_RUN, "approvals": _APPROVALS}, "run_id"),
        AppEvent("run.ended", RUN_ENDED, "A run has ended.", {**_RUN, "status": "completed"}, "run_id"),
    ),
    stop=stop_runs,
)
