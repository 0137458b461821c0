"""The toolset of moves."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone
from baobab.tools.moves.errors import (
    MOVE_ENVELOPE,
)

moves = Toolset(
    "moves",
    "Moving an app, with its data, to another region.",
    envelope=MOVE_ENVELOPE,
    clones=never_clone("history", "app_moves", "app_freezes"),
)
