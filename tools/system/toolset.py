"""The toolset of the installation itself."""

from baobab.tools.tool import Toolset

system = Toolset("system", "The installation: health, regions, guidance for language models.")
