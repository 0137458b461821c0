"""Billing: what an organisation has and spends, and the budgets that bound it."""
