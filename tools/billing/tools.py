"""Every billing tool: importing their files registers them."""

from baobab.tools.billing import budgets, gauges, jobs, statement, usage
from baobab.tools.billing.toolset import billing

__all__ = ["billing", "budgets", "gauges", "jobs", "statement", "usage"]
