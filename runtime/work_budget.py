"""A budget of work and memory for a request whose content decides how much of them it costs."""


class OverBudget(Exception):
    """The request needs more steps or bytes than its budget allows."""


class Budget:
    """Counts down the steps and the bytes that are left. A step is a few microseconds of work."""

    __slots__ = ("bytes", "steps")

    def __init__(self, steps: int, bytes_: int) -> None:
        self.steps = steps
        self.bytes = bytes_

    def spend(self, steps: int = 1, bytes_: int = 0) -> None:
        """Subtracts what is about to be used. Raises OverBudget where less is left."""
        self.steps -= steps
        self.bytes -= bytes_
        if self.steps < 0 or self.bytes < 0:
            raise OverBudget
