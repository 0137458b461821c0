"""The tool that reads the audit log, and the job that trims it."""

from baobab.tools.audit_logs import jobs, tools
from baobab.tools.audit_logs.toolset import audit_logs

TOOLSETS = (audit_logs,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
