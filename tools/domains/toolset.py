"""The toolset of custom domains. Its table is in the installation's own database: a name is one app's anywhere."""

from baobab.tools.core import RateLimited, Toolset, Unavailable
from baobab.tools.core.app_clones import never_clone

domains = Toolset(
    "domains",
    "Custom domains of an app: names of your own at which its site and its API are, beside its subdomain.",
    base="/v1/{app_id}",
    raises=(RateLimited, Unavailable),
    clones=never_clone("a name leads to one app", "custom_domains"),
)
