"""The toolset of the installation itself."""

from baobab.tools.core.toolset import Toolset

system = Toolset("system", "The installation: health, regions, documentation, guidance for language models.")
