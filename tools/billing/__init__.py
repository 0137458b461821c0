"""Billing: what an organisation has and spends, and the budgets that bound it."""

from baobab.tools.billing import gauges, jobs
from baobab.tools.billing.tools import budgets, statement, usage
from baobab.tools.billing.toolset import billing

TOOLSETS = (billing,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    gauges,
    jobs,
    budgets,
    statement,
    usage,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
