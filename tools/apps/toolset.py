"""The toolset of apps."""

from baobab.tools.core import Toolset

apps = Toolset("apps", "Apps: create, list, rename and delete them.")
