"""The toolset of API keys."""

from baobab.tools.core.toolset import Toolset

api_keys = Toolset("api_keys", "API keys: make, list and revoke them.")
