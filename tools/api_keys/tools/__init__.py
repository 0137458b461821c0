"""The tools of API keys."""
