"""The toolset of the audit log."""

from baobab.tools.core.toolset import Toolset

audit_logs = Toolset("audit_logs", "What was done to an app, by whom.", base="/v1/{app_id}")
