"""How much work and memory one request may cost where its content drives a loop or an allocation."""


class OverBudget(Exception):
    """The request asks for more steps or bytes than it may use."""


class Budget:
    """Counts down the steps and the bytes that are left. A step is a few microseconds of work."""

    __slots__ = ("bytes", "steps")

    def __init__(self, steps: int, bytes_: int) -> None:
        self.steps = steps
        self.bytes = bytes_

    def spend(self, steps: int = 1, bytes_: int = 0) -> None:
        """Take what is about to be used; raises OverBudget where it is not there."""
        self.steps -= steps
        self.bytes -= bytes_
        if self.steps < 0 or self.bytes < 0:
            raise OverBudget
