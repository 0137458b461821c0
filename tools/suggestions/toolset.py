"""The toolset of suggestions."""

from baobab.tools.core.toolset import Toolset

suggestions = Toolset("suggestions", "Tell the operators what is missing or wrong.")
