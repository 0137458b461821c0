"""Widening: arguments that give somebody more than they had, or take a guard away.

A tool declares them with `widens`: by argument, which of its values do. A key that is held to limits cannot give them.
"""

from collections.abc import Callable, Sequence
from typing import Any

Widens = Callable[[Any], bool]
"""Whether a value of an argument, as it was validated, widens."""


def whatever_is_given(value: Any) -> bool:
    """Returns whether a value is not null: any value widens."""
    return value is not None


def whatever_is_said(value: Any) -> bool:  # noqa: ARG001 - no value is told apart
    """Returns True: every value widens, even null, which removes a restriction."""
    return True


def one_of(values: Sequence[Any]) -> Widens:
    """Returns a check that these values widen, and no others."""
    return lambda value: value in values
