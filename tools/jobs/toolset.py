"""The toolset of durable jobs."""

from baobab.tools.core.toolset import Toolset

jobs = Toolset("jobs", "Background work of an organisation: what waits, and what has failed.", base="/v1/jobs")
