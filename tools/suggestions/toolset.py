"""The toolset of suggestions."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone

suggestions = Toolset(
    "suggestions", "Tell the operators what is missing or wrong.", clones=never_clone("history", "suggestions")
)
