"""The toolset of API keys."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone

api_keys = Toolset(
    "api_keys", "API keys: make, list and revoke them.", clones=never_clone("credentials", "api_keys", "signing_keys")
)
