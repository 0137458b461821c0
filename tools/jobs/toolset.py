"""The toolset of durable jobs."""

from baobab.tools.core.toolset import Toolset

jobs = Toolset("jobs", "What waits to be done for an organisation, and what has failed.", base="/v1/jobs")
