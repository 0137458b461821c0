"""How much a tenant may use: rates, plans, credits and money."""
