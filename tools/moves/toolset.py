"""The toolset of moves."""

from baobab.tools.core.toolset import Toolset
from baobab.tools.moves.errors import (
    MOVE_ENVELOPE,
)

moves = Toolset("moves", "Moving an app, with its data, to another region.", envelope=MOVE_ENVELOPE)
