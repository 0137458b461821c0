"""The family of apps."""

from baobab.tools.tool import Toolset

apps = Toolset("apps", "Apps: create, list, rename and delete them.")
