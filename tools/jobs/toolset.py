"""The toolset of durable jobs."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone

jobs = Toolset(
    "jobs",
    "Background work of an organisation: what waits, and what has failed.",
    base="/v1/jobs",
    clones=never_clone("history", "events", "failures"),
)
