"""The toolset of the installation itself."""

from baobab.tools.core import Toolset

system = Toolset("system", "The installation: health, regions, documentation, guidance for language models.")

operation = Toolset("operation", "What the operator of the installation can see of it.", mcp=False)
