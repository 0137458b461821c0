"""The toolset of the console."""

from baobab.tools.core import Toolset

console = Toolset(
    "console",
    "Sessions of the console, in which people see what waits for them and decide.",
    base="/v1/console",
    mcp=False,
)
