"""Baobab whose callers may make as many calls as a measurement needs. All limits are counted as usual, and never met.

It takes what the command `baobab` takes.
"""

from baobab.cli import main
from baobab.tools.core.limits.limits import CallerRequests


def raise_limits() -> None:
    """Raises what one caller, and one organisation, may call in a minute that names no app."""
    CallerRequests.amount = CallerRequests.of_organisation = 10**7


# Also in the processes of several workers, which import this module under another name.
raise_limits()

if __name__ == "__main__":
    main()
