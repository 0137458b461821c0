"""The toolset of billing."""

from baobab.tools.core.toolset import Toolset

billing = Toolset("billing", "What an organisation has, what it has spent, and its budgets.", base="/dashboard")
