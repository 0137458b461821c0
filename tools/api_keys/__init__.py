"""API keys: making them, listing them, taking them out of force."""
