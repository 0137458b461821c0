"""Users of apps: sign-in, sessions and their administration."""

from baobab.tools.users import jobs
from baobab.tools.users.tools import (
    administration,
    anonymous,
    hook_calls,
    imports,
    invitations,
    magic_links,
    mcp,
    oauth,
    passkeys,
    passwords,
    profile,
    providers,
    second_factor,
    sessions,
    settings,
    signing_keys,
)
from baobab.tools.users.toolset import auth, users

TOOLSETS = (auth, users)
MODULES = (
    passwords,
    magic_links,
    second_factor,
    passkeys,
    anonymous,
    mcp,
    sessions,
    profile,
    oauth,
    administration,
    imports,
    invitations,
    hook_calls,
    settings,
    providers,
    signing_keys,
    jobs,
)
