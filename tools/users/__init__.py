"""Users of apps: sign-in, sessions and their administration."""

from baobab.tools.users import jobs
from baobab.tools.users.tools import administration, magic_links, passwords, profile, sessions, signing_keys
from baobab.tools.users.toolset import auth, users

TOOLSETS = (auth, users)
MODULES = (passwords, magic_links, sessions, profile, administration, signing_keys, jobs)
