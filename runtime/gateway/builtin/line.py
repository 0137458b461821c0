"""The thread in which the built-in models do what takes long: one for a process, and callers take turns."""

from baobab.runtime.turns import Turns

# More threads would take the processors from those who only wait for the network.
LINE = Turns("the built-in models")
